"""Calls NVML and translates its errors.

A value that the GPU, the driver or pynvml does not support is None.
"""

from collections.abc import Callable
from typing import Any, Final, ParamSpec

import pynvml

from partita.agent.errors import (
    DeviceAccessLostError,
    GPULostError,
    NoDriverError,
    NotPermittedError,
    NVMLError,
)

__all__ = ["call", "maybe", "optional", "translated"]

P = ParamSpec("P")

_KINDS: Final[dict[int, type[NVMLError]]] = {
    pynvml.NVML_ERROR_NO_PERMISSION: NotPermittedError,
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: NoDriverError,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: NoDriverError,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: NoDriverError,
    pynvml.NVML_ERROR_GPU_IS_LOST: GPULostError,
    pynvml.NVML_ERROR_RESET_REQUIRED: GPULostError,
    pynvml.NVML_ERROR_GPU_NOT_FOUND: GPULostError,
    pynvml.NVML_ERROR_OPERATING_SYSTEM: DeviceAccessLostError,
    pynvml.NVML_ERROR_UNKNOWN: DeviceAccessLostError,
}
"""Errors by `nvmlReturn_t` (https://docs.nvidia.com/deploy/nvml-api/); the others are `NVMLError`.

UNKNOWN is what a container reads that has lost its devices to `systemctl daemon-reload`
(https://github.com/NVIDIA/nvidia-container-toolkit/issues/48). OPERATING_SYSTEM is documented as
"blocked by the operating system/cgroups"."""

_NEW_CONTAINER: Final = (
    "this container may not open the GPU any more, as after `systemctl daemon-reload`, and is "
    "started anew; if it happens again, follow "
    "https://github.com/NVIDIA/nvidia-container-toolkit/issues/48"
)
_RESET: Final = "reset the GPU (nvidia-smi --gpu-reset) or reboot the node"
_REMEDIES: Final = {
    pynvml.NVML_ERROR_NO_PERMISSION: (
        "let the server Pod be as the operator makes it: its containers run as root"
    ),
    pynvml.NVML_ERROR_INSUFFICIENT_POWER: "attach the GPU's power cables",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "load the driver on the node (modprobe nvidia)",
    pynvml.NVML_ERROR_IRQ_ISSUE: "read the kernel's log of the node (NVRM)",
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "install NVIDIA's driver and container toolkit",
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: "install a newer driver",
    pynvml.NVML_ERROR_CORRUPTED_INFOROM: "have the GPU replaced",
    pynvml.NVML_ERROR_GPU_IS_LOST: _RESET,
    pynvml.NVML_ERROR_RESET_REQUIRED: _RESET,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        "the driver was replaced while it was in use: reboot the node, or load the new one and "
        "delete the server Pod"
    ),
    pynvml.NVML_ERROR_OPERATING_SYSTEM: _NEW_CONTAINER,
    pynvml.NVML_ERROR_UNKNOWN: _NEW_CONTAINER,
}
_NAMES: Final = {
    value: name for name, value in vars(pynvml).items() if name.startswith("NVML_ERROR_")
}

_UNSUPPORTED: Final = frozenset(
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
        if error.value in _UNSUPPORTED or error.value == pynvml.NVML_ERROR_NO_PERMISSION:
            return None
        raise translated(error) from error


def optional(function: Callable[P, Any], *args: P.args, **kwargs: P.kwargs) -> Any:
    """Call NVML for a metric of use; return None if it fails, for whatever reason.

    Each function may return UNKNOWN "on any unexpected error" (nvml.h, NVIDIA/nvidia-settings). The
    calls for memory and processes, which each sample needs, tell that the GPU cannot be reached.
    """
    try:
        return function(*args, **kwargs)
    except pynvml.NVMLError:
        return None


def translated(error: pynvml.NVMLError) -> NVMLError:
    """Return an error of pynvml as an error of `partita.agent.errors`."""
    code = error.value
    name = f"{_NAMES[code]} ({code})" if code in _NAMES else f"NVML error {code}"
    remedy = f": {_REMEDIES[code]}" if code in _REMEDIES else ""
    return _KINDS.get(code, NVMLError)(f"{name}{remedy}")
