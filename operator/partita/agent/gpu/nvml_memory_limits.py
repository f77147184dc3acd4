"""Memory limits of cgroups, which the driver applies from r615 (CUDA 13.4) on.

https://docs.nvidia.com/deploy/mps/mpsv3-memory-partitioning.html, "Using the NVML API". All calls
block: call them in a thread.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pynvml
from typing_extensions import override

from partita.agent.gpu.nvml import NVMLDevice
from partita.agent.gpu.nvml_calls import call, maybe, translated
from partita.models.quantities import mebibytes

__all__ = ["MemoryLimits", "can_limit_memory", "memory_limits", "set_memory_limits"]

_UNLIMITED: Final[int] = pynvml.NVML_DEVICE_MEMORY_LIMIT_MAX
"""Hard limit of a cgroup that may use the whole GPU, bytes."""


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """The limits of a cgroup on one GPU. They are equal whatever is used."""

    soft: int
    """Guaranteed memory, bytes."""
    hard: int
    """Most memory, bytes."""
    used: int = field(default=0, compare=False)
    """Memory that the processes of the cgroup use now, bytes."""

    @property
    def limited(self) -> bool:
        """Whether the cgroup may not use the whole GPU."""
        return self.hard != _UNLIMITED

    @override
    def __str__(self) -> str:
        """Describe the limits."""
        if self.soft == self.hard:
            return mebibytes(self.hard)
        return f"{mebibytes(self.hard)} with {mebibytes(self.soft)} guaranteed"


def can_limit_memory(gpu: NVMLDevice, cgroups: Path) -> bool:
    """Return whether the installed driver has the functions of memory limits.

    Parameters
    ----------
    cgroups
        Where the node's cgroups are mounted.

    Notes
    -----
    That a limit can be set is shown only by setting one. A driver that has these functions returns
    NOT_SUPPORTED for a cgroup without a limit as well as if the limits are turned off
    (NVIDIA/open-gpu-kernel-modules 615, src/nvidia/src/kernel/mem_mgr/memacct.c, memacctGetLimits).
    """
    try:
        pynvml.nvmlDeviceGetMemoryLimits_v1(gpu.handle, _request(cgroups))
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
            return False
        if error.value not in (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_NOT_FOUND):
            raise translated(error) from error
    return True


def memory_limits(gpu: NVMLDevice, cgroup: Path) -> MemoryLimits | None:
    """Read the limits of a cgroup; None if it has none or does not exist.

    A cgroup without limits of its own has those of its nearest ancestor that has some.
    """
    asked = _request(cgroup)
    if maybe(_get, gpu.handle, asked) is None:
        return None
    return MemoryLimits(int(asked.softLimit), int(asked.hardLimit), int(asked.currentUsed))


def set_memory_limits(gpu: NVMLDevice, cgroup: Path, soft: int, hard: int) -> None:
    """Set the limits of a cgroup, bytes. The driver adds a change of the soft one to all ancestors.

    Raises
    ------
    NotPermittedError
        This process has no administrator rights on the node.
    NVMLError
        The driver refuses the limits, or the cgroup cannot have any.
    """
    limits = pynvml.c_nvmlSetMemoryLimits_v1_t(str(cgroup).encode(), soft, hard)
    call(pynvml.nvmlDeviceSetMemoryLimits_v1, gpu.handle, limits)


def _request(cgroup: Path) -> "pynvml.c_nvmlGetMemoryLimits_v1_t":
    return pynvml.c_nvmlGetMemoryLimits_v1_t(str(cgroup).encode())


def _get(handle: object, asked: "pynvml.c_nvmlGetMemoryLimits_v1_t") -> bool:
    """Call NVML, which fills in the request. pynvml returns nothing, as `maybe` does on failure."""
    pynvml.nvmlDeviceGetMemoryLimits_v1(handle, asked)
    return True
