"""The structures of the native library (`native/*.h`) for ctypes and numpy."""

from ctypes import Structure, c_double, c_int32, c_int64, c_uint64, c_void_p

import numpy as np
from numpy.typing import NDArray

from partita_policies.interference import Load
from partita_policies.native.structures import FREE_GPU

__all__ = [
    "ARRIVAL",
    "GPU_STATE",
    "HIDDEN",
    "INPUTS",
    "JOBS",
    "OUTLOOK",
    "PHASES",
    "PLACEMENT",
    "NativeProblem",
    "NativeRecord",
    "NativeSettings",
    "NativeState",
    "address",
]

PHASES, JOBS, INPUTS, HIDDEN = 6, 48, 128, 32

LOAD = np.dtype([(name, "f8") for name in Load._fields])
PHASE = np.dtype([("load", LOAD), ("seconds", "f8")])
OUTLOOK = np.dtype(
    [
        *(("phase", PHASE, PHASES), ("mean", LOAD), ("duration", "f8")),
        *(("phases", "i4"), ("allowed", "i4")),
    ]
)
RUNNING = np.dtype([("kind", "i4"), ("phase", "i4"), ("left", "f8"), ("speed", "f8")])
GPU_STATE = np.dtype(
    [
        *(("free", FREE_GPU), ("type", "i4"), ("node", "i4")),
        *(("since", "f8"), ("next", "f8"), ("jobs", RUNNING, JOBS)),
    ]
)
ARRIVAL = np.dtype([("kind", "i4"), ("unused", "i4"), ("time", "f8")])
PLACEMENT = np.dtype([("kind", "i4"), ("gpu", "i4")])


class NativeProblem(Structure):
    """`Problem` of cluster.h."""

    _fields_ = (
        *((name, c_int32) for name in ("kinds", "types", "gpus", "nodes", "applications")),
        ("sharing", c_int32),
        *((name, c_void_p) for name in ("kind", "outlook", "factors", "spreads")),
        *((name, c_void_p) for name in ("eligible", "rates")),
    )


class NativeState(Structure):
    """`State` of cluster.h."""

    _fields_ = (
        *((name, c_void_p) for name in ("gpu", "waiting", "host")),
        *((name, c_int32) for name in ("queued", "running")),
        *((name, c_double) for name in ("now", "total", "makespan")),
    )


class NativeSettings(Structure):
    """`Settings` of decide.h."""

    _fields_ = (
        ("weights", c_void_p),
        *((name, c_double) for name in ("sharpness", "urgency", "completion", "budget")),
        ("work", c_int64),
    )


class NativeRecord(Structure):
    """`Record` of decide.h."""

    _fields_ = (
        *((name, c_void_p) for name in ("inputs", "gain", "cost", "first", "chosen", "unit")),
        *((name, c_int32) for name in ("rows", "decisions", "most_rows", "most_decisions")),
        *(("tried", c_int32), ("runs", c_int32), ("seed", c_uint64), ("chance", c_double)),
        *((name, c_void_p) for name in ("target", "cost_of", "of_trials")),
    )


def address(array: NDArray[np.generic] | None) -> int | None:
    """Return where an array's numbers are; None, a null pointer, for None."""
    return None if array is None else array.ctypes.data
