"""The structures of the native library (`native/*.h`) for ctypes and numpy."""

from ctypes import (
    POINTER,
    Structure,
    c_double,
    c_float,
    c_int32,
    c_int64,
    c_uint8,
    c_uint64,
    c_void_p,
)

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
    "pointer",
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
        *(("sharing", c_int32), ("kind", c_void_p), ("outlook", c_void_p)),
        *(("factors", POINTER(c_double)), ("spreads", POINTER(c_double))),
        *(("eligible", POINTER(c_uint8)), ("rates", c_void_p)),
    )


class NativeState(Structure):
    """`State` of cluster.h."""

    _fields_ = (
        *(("gpu", c_void_p), ("waiting", POINTER(c_int32)), ("host", POINTER(c_int64))),
        *((name, c_int32) for name in ("queued", "running")),
        *((name, c_double) for name in ("now", "total", "makespan")),
    )


class NativeSettings(Structure):
    """`Settings` of decide.h."""

    _fields_ = (
        ("weights", POINTER(c_float)),
        *((name, c_double) for name in ("sharpness", "urgency", "completion", "budget")),
        ("work", c_int64),
    )


class NativeRecord(Structure):
    """`Record` of decide.h."""

    _fields_ = (
        *((name, POINTER(c_float)) for name in ("inputs", "gain", "cost")),
        *((name, POINTER(c_int32)) for name in ("first", "chosen")),
        ("unit", POINTER(c_double)),
        *((name, c_int32) for name in ("rows", "decisions", "most_rows", "most_decisions")),
        *(("tried", c_int32), ("runs", c_int32), ("seed", c_uint64), ("chance", c_double)),
        *(("target", POINTER(NativeSettings)), ("cost_of", c_void_p), ("of_trials", c_void_p)),
    )


def pointer(array: NDArray[np.generic] | None, of: type) -> object:
    """Return a pointer to an array's numbers; a null pointer for None."""
    return None if array is None else array.ctypes.data_as(POINTER(of))
