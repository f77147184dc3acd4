"""The processes on a GPU, as NVML lists them, by version 2 of its lists.

Version 2 has the same entries of 24 bytes in every release from 495.29 to 610.43
(https://github.com/NVIDIA/nvidia-settings, src/nvml.h). Version 3 is missing in 495 and in 535.98,
and has entries of 32 bytes from 535.43 to 535.86 (https://github.com/XuehaiPan/nvitop/pull/89).

pynvml asks for the length of a list before the list, and makes an object of each entry. These lists
are read ten times a second, so they are read here.
"""

import ctypes
import struct
from typing import Any, Final

import pynvml

from partita.agent.errors import NVMLError
from partita.agent.gpu.nvml_calls import call, maybe

__all__ = ["memory_by_pid"]

_PIDS: Final = range(1, 1 << 22)
"""PIDs that a process can have (include/linux/threads.h of Linux, `PID_MAX_LIMIT`)."""
_ENTRY: Final = struct.Struct("IQII")
"""`nvmlProcessInfo_v2_t`: PID, bytes and two numbers of MIG."""
_UNKNOWN: Final = (1 << 64) - 1
"""`NVML_VALUE_NOT_AVAILABLE` as a number of bytes."""
_ROOM: Final = 256
"""Entries for which there is room at once; most GPUs have fewer processes."""


def memory_by_pid(handle: Any) -> dict[int, int | None]:
    """Return the bytes of each process on the GPU, including MPS clients; None if unknown.

    Raises
    ------
    NVMLError
        The driver cannot list the processes, or not in entries of this size: usage could not be
        attributed to jobs.
    """
    found: dict[int, int | None] = call(_listed, "nvmlDeviceGetComputeRunningProcesses_v2", handle)
    clients = maybe(_listed, "nvmlDeviceGetMPSComputeRunningProcesses_v2", handle) or {}
    for pid, memory in clients.items():
        known = found.get(pid)
        found[pid] = memory if known is None else max(known, memory or 0)
    impossible = [pid for pid in found if pid not in _PIDS]
    if impossible:
        # An entry of another size is read in the middle of the next one.
        raise NVMLError(
            f"NVML lists a process with the PID {impossible[0]}, which none can have: Partita does "
            "not know how this driver lists processes; install another one"
        )
    return found


def _listed(function: str, handle: Any) -> dict[int, int | None]:
    """Call one of NVML's functions that list processes.

    Raises
    ------
    pynvml.NVMLError
        The call fails, or the driver does not have the function.
    """
    listing = getattr(pynvml.nvmlLib, function, None)
    if listing is None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    count = ctypes.c_uint(_ROOM)
    entries = ctypes.create_string_buffer(_ROOM * _ENTRY.size)
    code = listing(handle, ctypes.byref(count), entries)
    if code == pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
        count.value *= 2  # more may come until the next call
        entries = ctypes.create_string_buffer(count.value * _ENTRY.size)
        code = listing(handle, ctypes.byref(count), entries)
    if code != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(code)
    used = _ENTRY.iter_unpack(memoryview(entries)[: count.value * _ENTRY.size])
    return {pid: None if memory == _UNKNOWN else memory for pid, memory, _, _ in used}
