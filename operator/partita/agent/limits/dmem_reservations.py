"""Repairs the memory that cgroups above containers still reserve for containers that are gone.

With the kernel's controller dmem the driver adds the soft limit of a container's cgroup to all its
ancestors. When a container ends, its cgroup is removed without a notice to the driver, and the
ancestors keep its share for ever
(https://docs.nvidia.com/deploy/mps/mpsv3-memory-partitioning.html, "Ancestor reservation
propagation"). The reservation of an ancestor should be the sum of those of its children. A change
of an ancestor is propagated by the driver to the ancestors above it, so the repair goes upwards.

The driver changes a container and its ancestors one after another. So a difference counts only if
the next check finds the same one.
"""

from itertools import chain
from pathlib import Path
from typing import Final

from partita.agent.gpu.nvml import NVMLDevice
from partita.agent.gpu.nvml_memory_limits import memory_limits, set_memory_limits
from partita.agent.limits.cgroups import CgroupTree, children

__all__ = ["DmemReservations"]

_RESERVED: Final = "dmem.min"
"""The file of a cgroup's reservation; missing without the controller dmem."""


class DmemReservations:
    """The reservations of one GPU's memory in the cgroups of kubelet."""

    def __init__(self) -> None:
        self._wrong: dict[Path, tuple[int, int]] = {}

    def repair(self, gpu: NVMLDevice, tree: CgroupTree) -> list[Path]:
        """Repair reservations that are still wrong since the last call; return their cgroups.

        The call blocks: call it in a thread.

        Raises
        ------
        NVMLError
            The driver refuses the repair.
        """
        found: dict[Path, tuple[int, int]] = {}
        repaired = []
        # The cgroups above containers, from the Pods to kubelet's root of all Pods.
        for cgroup in filter(_has_reservation, chain(tree.pods(), tree.above_pods())):
            limits = memory_limits(gpu, cgroup)
            if limits is None:
                continue
            needed = sum(_soft(gpu, child) for child in children(cgroup))
            if limits.soft == needed:
                continue
            if self._wrong.get(cgroup) == (limits.soft, needed):
                set_memory_limits(gpu, cgroup, needed, limits.hard)
                repaired.append(cgroup)
            else:
                found[cgroup] = limits.soft, needed
        self._wrong = found
        return repaired


def _soft(gpu: NVMLDevice, cgroup: Path) -> int:
    """Return a cgroup's own reservation, bytes. Without the file it would be its ancestor's."""
    limits = memory_limits(gpu, cgroup) if _has_reservation(cgroup) else None
    return limits.soft if limits is not None else 0


def _has_reservation(cgroup: Path) -> bool:
    return (cgroup / _RESERVED).exists()
