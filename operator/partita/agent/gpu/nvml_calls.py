"""Calls NVML and translates its errors.

A value that the GPU, the driver or pynvml does not support is None.
"""

from collections.abc import Callable
from typing import Any, Final, ParamSpec

import pynvml

from partita.agent.errors import GPULostError, NoDriverError, NotPermittedError, NVMLError

__all__ = ["UNSUPPORTED", "call", "maybe", "number", "translated"]

P = ParamSpec("P")

_NO_DRIVER: Final = frozenset(
    {
        pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    }
)
_LOST: Final = frozenset(
    {
        pynvml.NVML_ERROR_GPU_IS_LOST,
        pynvml.NVML_ERROR_RESET_REQUIRED,
        pynvml.NVML_ERROR_GPU_NOT_FOUND,
    }
)
UNSUPPORTED: Final = frozenset(
    {
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_NO_DATA,
        pynvml.NVML_ERROR_NOT_FOUND,
        pynvml.NVML_ERROR_DEPRECATED,
    }
)
"""Errors of calls that are not supported, or have no data at present."""


def call(function: Callable[P, Any], *args: P.args, **kwargs: P.kwargs) -> Any:
    """Call NVML.

    Raises
    ------
    NVMLError
        The call fails.
    """
    try:
        return function(*args, **kwargs)
    except pynvml.NVMLError as error:
        raise translated(error) from error


def maybe(function: Callable[P, Any], *args: P.args, **kwargs: P.kwargs) -> Any:
    """Call NVML; return None if it is not supported or needs an administrator."""
    try:
        return function(*args, **kwargs)
    except pynvml.NVMLError as error:
        if error.value in UNSUPPORTED or error.value == pynvml.NVML_ERROR_NO_PERMISSION:
            return None
        raise translated(error) from error


def number(function: Callable[P, Any], *args: P.args, **kwargs: P.kwargs) -> int | None:
    """Call NVML and return the result as an int; None as for `maybe`."""
    value = maybe(function, *args, **kwargs)
    return None if value is None else int(value)


def translated(error: pynvml.NVMLError) -> NVMLError:
    """Return an error of pynvml as an error of `partita.agent.errors`."""
    if error.value in _NO_DRIVER:
        return NoDriverError(str(error))
    if error.value in _LOST:
        return GPULostError(str(error))
    if error.value == pynvml.NVML_ERROR_NO_PERMISSION:
        return NotPermittedError(str(error))
    return NVMLError(str(error))
