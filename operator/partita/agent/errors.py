"""Errors on a GPU's node, one class for each kind that the agent handles differently.

AgentError
├── NVMLError           a call to the driver failed
│   ├── NoDriverError       no driver is installed
│   ├── DeviceAccessLostError the container may not open the GPU any more
│   ├── GPULostError        the GPU has fallen off the bus, or needs a reset
│   ├── NVMLHangsError      the call did not return in time
│   └── NotPermittedError   the call needs more rights
├── CUDAError           a call of the CUDA driver API failed
├── MPSError            a command to the MPS control daemon failed
│   ├── MPSGoneError        no daemon runs
│   ├── MPSBusyError        another command occupies the daemon
│   ├── MPSUnansweredError  the daemon did not answer in time
│   ├── MPSRefusedError     the daemon refused the command
│   └── MPSGarbledError     the daemon's answer cannot be parsed
├── KubeletError        a call to kubelet or to another agent of the node failed
├── PrepareError        a claim cannot be prepared; the message says why
│   └── TransientPrepareError a claim cannot be prepared now
└── SetupError          the GPU cannot be served; the message says what to change
"""

from typing import ClassVar

__all__ = [
    "AgentError",
    "CUDAError",
    "DeviceAccessLostError",
    "GPULostError",
    "KubeletError",
    "MPSBusyError",
    "MPSError",
    "MPSGarbledError",
    "MPSGoneError",
    "MPSRefusedError",
    "MPSUnansweredError",
    "NVMLError",
    "NVMLHangsError",
    "NoDriverError",
    "NotPermittedError",
    "PrepareError",
    "SetupError",
    "TransientPrepareError",
]


class AgentError(Exception):
    """An error on the node."""


class NVMLError(AgentError):
    """A call to the driver failed."""

    reason: ClassVar = "NVMLError"
    """Reason of the condition: one machine-readable word."""


class NoDriverError(NVMLError):
    """No driver is installed."""

    reason = "NoDriver"


class DeviceAccessLostError(NVMLError):
    """The container may not open the GPU any more; only a new container may."""

    reason = "DeviceAccessLost"


class GPULostError(NVMLError):
    """The GPU has fallen off the bus, or needs a reset."""

    reason = "GPULost"


class NVMLHangsError(NVMLError):
    """The call did not return in time."""

    reason = "NVMLHangs"


class NotPermittedError(NVMLError):
    """The call needs more rights."""

    reason = "NotPermitted"


class CUDAError(AgentError):
    """A call of the CUDA driver API failed.

    Parameters
    ----------
    message
        The function and the name of the error.
    code
        The `CUresult`; 0 if the call was not made.
    """

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class MPSError(AgentError):
    """A command to the MPS control daemon failed."""


class MPSGoneError(MPSError):
    """No daemon runs."""


class MPSBusyError(MPSError):
    """Another command occupies the daemon."""


class MPSUnansweredError(MPSError):
    """The daemon did not answer in time."""


class MPSRefusedError(MPSError):
    """The daemon refused the command."""


class MPSGarbledError(MPSError):
    """The daemon's answer cannot be parsed."""


class KubeletError(AgentError):
    """A call to kubelet or to another agent of the node failed."""


class PrepareError(AgentError):
    """A claim cannot be prepared; the message says why, and what to change if something can be."""


class TransientPrepareError(PrepareError):
    """A claim cannot be prepared now, but perhaps in a moment."""


class SetupError(AgentError):
    """The GPU cannot be served.

    Parameters
    ----------
    reason
        Reason of the condition: one machine-readable word.
    message
        Description of the problem, and what to change.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
