"""The driver's memory limits of cgroups, from r615 on.

`mp` is https://docs.nvidia.com/deploy/mps/mpsv3-memory-partitioning.html. Two backends store the
limits, by what the kernel has when the driver loads ("Backends"): `dmem` in the kernel's files,
`misc` in the driver.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from cgroups import CgroupTree, device_key, read_value, write_value


@dataclass(frozen=True)
class Limits:
    """Limits of a cgroup for one GPU, in bytes; a `hard` of None is no limit."""

    soft: int
    hard: int | None


class Dmem:
    """The kernel's controller. `binding` returns the nearest cgroup first."""

    def __init__(self, tree: CgroupTree) -> None:
        self._tree = tree

    def set(self, gpu: int, group: Path, limits: Limits) -> bool:
        """`mp`, "Setting on a leaf versus a parent": a cgroup without dmem's files has no limit.

        "Ancestor reservation propagation": the change of the soft limit is added to all ancestors,
        up to the first one without `dmem.min`.
        """
        if not (group / "dmem.max").exists():
            return False
        key = device_key(gpu)
        write_value(group / "dmem.max", key, limits.hard)
        change = limits.soft - (read_value(group / "dmem.min", key) or 0)
        for level in self._tree.chain(group):
            reserved = level / "dmem.min"
            if not reserved.exists():
                break
            write_value(reserved, key, max((read_value(reserved, key) or 0) + change, 0))
        return True

    def get(self, gpu: int, group: Path) -> Limits | None:
        """`mp`: a cgroup without files reads the nearest ancestor that has some."""
        bound = self.binding(gpu, group)
        return bound[0][1] if bound else None

    def binding(self, gpu: int, group: Path) -> list[tuple[Path, Limits]]:
        """All levels bind (kernel, "DMEM"): a process may not exceed any ancestor's maximum."""
        key = device_key(gpu)
        return [
            (
                level,
                Limits(
                    read_value(level / "dmem.min", key) or 0, read_value(level / "dmem.max", key)
                ),
            )
            for level in self._tree.chain(group)
            if (level / "dmem.max").exists()
        ]

    def charge(self, gpu: int, used: dict[Path, int]) -> None:
        """Take note of what cgroups use, each with those below it."""
        for group, memory in used.items():
            # A cgroup may be gone before the driver knows that its last process is.
            with contextlib.suppress(FileNotFoundError):
                write_value(group / "dmem.current", device_key(gpu), memory)


class Misc:
    """The driver's own map: one limit for a cgroup, without files."""

    def __init__(self, tree: CgroupTree) -> None:
        self._tree = tree
        self._limits: dict[tuple[int, Path], Limits] = {}

    def set(self, gpu: int, group: Path, limits: Limits) -> bool:
        self._limits[gpu, group] = limits
        return True

    def get(self, gpu: int, group: Path) -> Limits | None:
        bound = self.binding(gpu, group)
        return bound[0][1] if bound else None

    def binding(self, gpu: int, group: Path) -> list[tuple[Path, Limits]]:
        """`mp`, "dmem versus misc": the nearest limited ancestor alone; limits do not nest."""
        self._limits = {k: v for k, v in self._limits.items() if k[1].exists()}
        for level in self._tree.chain(group):
            if limits := self._limits.get((gpu, level)):
                return [(level, limits)]
        return []

    def charge(self, gpu: int, used: dict[Path, int]) -> None:
        """No file shows it."""
