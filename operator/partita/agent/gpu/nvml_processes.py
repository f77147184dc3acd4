"""The processes on a GPU, as NVML lists them, with the version of the list that the driver has.

Version 3 of the functions is missing before driver 510 and in 535.98. From 535.43 to 535.86 its
entries are longer than pynvml expects (https://github.com/XuehaiPan/nvitop/pull/89).
"""

from contextlib import suppress
from typing import Any

import pynvml

__all__ = ["compute_processes", "mps_processes"]


def compute_processes(handle: Any) -> list[Any]:
    """List the processes that use the GPU, without MPS clients."""
    return _listed("nvmlDeviceGetComputeRunningProcesses", handle)


def mps_processes(handle: Any) -> list[Any]:
    """List the MPS clients."""
    return _listed("nvmlDeviceGetMPSComputeRunningProcesses", handle)


def _listed(name: str, handle: Any) -> list[Any]:
    driver = tuple(int(part) for part in pynvml.nvmlSystemGetDriverVersion().split(".")[:2])
    if not (535, 43) <= driver < (535, 98):
        with suppress(pynvml.NVMLError_FunctionNotFound):
            return list(getattr(pynvml, f"{name}_v3")(handle))
    return list(getattr(pynvml, f"{name}_v2")(handle))
