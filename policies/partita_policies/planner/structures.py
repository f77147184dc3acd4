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

__all__ = [
    "ARRIVAL",
    "GPU_STATE",
    "HIDDEN",
    "INPUTS",
    "JOBS",
    "KIND",
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
        ("phase", PHASE, (PHASES,)),
        ("mean", LOAD),
        ("duration", "f8"),
        ("phases", "i4"),
        ("allowed", "i4"),
    ]
)
KIND = np.dtype(
    [
        ("memory", "i8"),
        ("host", "i8", (3,)),
        ("slots", "i4"),
        ("clients", "i4"),
        ("alone", "i4"),
        ("lasting", "i4"),
        ("application", "i4"),
        ("unused", "i4"),
    ]
)
RUNNING = np.dtype([("kind", "i4"), ("phase", "i4"), ("left", "f8"), ("speed", "f8")])
GPU_STATE = np.dtype(
    [
        ("capacity", "i8"),
        ("memory", "i8"),
        ("type", "i4"),
        ("node", "i4"),
        ("slots", "i4"),
        ("clients", "i4"),
        ("count", "i4"),
        ("alone", "i4"),
        ("since", "f8"),
        ("next", "f8"),
        ("jobs", RUNNING, (JOBS,)),
    ]
)
ARRIVAL = np.dtype([("kind", "i4"), ("unused", "i4"), ("time", "f8")])
PLACEMENT = np.dtype([("kind", "i4"), ("gpu", "i4")])


class NativeProblem(Structure):
    """`Problem` of cluster.h."""

    _fields_ = (
        ("kinds", c_int32),
        ("types", c_int32),
        ("gpus", c_int32),
        ("nodes", c_int32),
        ("applications", c_int32),
        ("sharing", c_int32),
        ("exclusive", c_int32),
        ("kind", c_void_p),
        ("outlook", c_void_p),
        ("factors", POINTER(c_double)),
        ("spreads", POINTER(c_double)),
        ("eligible", POINTER(c_uint8)),
        ("rates", c_void_p),
    )


class NativeState(Structure):
    """`State` of cluster.h."""

    _fields_ = (
        ("gpu", c_void_p),
        ("waiting", POINTER(c_int32)),
        ("host", POINTER(c_int64)),
        ("queued", c_int32),
        ("running", c_int32),
        ("now", c_double),
        ("total", c_double),
        ("makespan", c_double),
    )


class NativeSettings(Structure):
    """`Settings` of decide.h."""

    _fields_ = (
        ("weights", POINTER(c_float)),
        ("sharpness", c_double),
        ("urgency", c_double),
        ("completion", c_double),
        ("budget", c_double),
        ("work", c_int64),
    )


class NativeRecord(Structure):
    """`Record` of decide.h."""

    _fields_ = (
        ("inputs", POINTER(c_float)),
        ("gain", POINTER(c_float)),
        ("cost", POINTER(c_float)),
        ("first", POINTER(c_int32)),
        ("chosen", POINTER(c_int32)),
        ("unit", POINTER(c_double)),
        ("rows", c_int32),
        ("decisions", c_int32),
        ("most_rows", c_int32),
        ("most_decisions", c_int32),
        ("tried", c_int32),
        ("runs", c_int32),
        ("seed", c_uint64),
        ("chance", c_double),
        ("target", POINTER(NativeSettings)),
        ("cost_of", c_void_p),
        ("of_trials", c_void_p),
    )


def pointer(array: NDArray[np.generic] | None, of: type) -> object:
    """Return a pointer to an array's numbers; a null pointer for None."""
    return None if array is None else array.ctypes.data_as(POINTER(of))
