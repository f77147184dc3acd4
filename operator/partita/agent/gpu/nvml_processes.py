"""The processes on a GPU, as NVML lists them, by version 2 of its lists.

Version 2 has the same entries of 24 bytes in every release from 495.29 to 610.43
(https://github.com/NVIDIA/nvidia-settings, src/nvml.h). Version 3 is missing in 495 and in 535.98,
and has entries of 32 bytes from 535.43 to 535.86 (https://github.com/XuehaiPan/nvitop/pull/89).
"""

from typing import Any, Final

import pynvml

from partita.agent.errors import NVMLError
from partita.agent.gpu.nvml_calls import call, maybe

__all__ = ["memory_by_pid"]

_PIDS: Final = range(1, 1 << 22)
"""PIDs that a process can have (include/linux/threads.h of Linux, `PID_MAX_LIMIT`)."""


def memory_by_pid(handle: Any) -> dict[int, int | None]:
    """Return the bytes of each process on the GPU, including MPS clients; None if unknown.

    Raises
    ------
    NVMLError
        The driver cannot list the processes, or not as pynvml reads them: usage could not be
        attributed to jobs.
    """
    listed = call(pynvml.nvmlDeviceGetComputeRunningProcesses_v2, handle)
    found = {process.pid: process.usedGpuMemory for process in listed}
    for process in maybe(pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v2, handle) or ():
        known = found.get(process.pid)
        memory = process.usedGpuMemory
        found[process.pid] = memory if known is None else max(known, memory or 0)
    impossible = [pid for pid in found if pid not in _PIDS]
    if impossible:
        # An entry of another size is read in the middle of the next one.
        raise NVMLError(
            f"NVML lists a process with the PID {impossible[0]}, which none can have: Partita does "
            "not know how this driver lists processes; install another one"
        )
    return found
