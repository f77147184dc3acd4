"""What can go wrong on a GPU's node, one class for each thing the agent does differently.

AgentError
├── NVMLError           a call to the driver failed
│   ├── NoDriverError       there is no driver to call
│   ├── GPULostError        the GPU has fallen off the bus, or needs a reset
│   └── NotPermittedError   the call asks for more rights
├── MPSError            the MPS control daemon did not do what it was asked
│   ├── MPSGoneError        there is no daemon
│   ├── MPSUnansweredError  it did not answer in time
│   └── MPSGarbledError     its answer means nothing to us
└── SetupError          the GPU cannot be served as it is; says what to change
"""

__all__ = [
    "AgentError",
    "GPULostError",
    "MPSError",
    "MPSGarbledError",
    "MPSGoneError",
    "MPSUnansweredError",
    "NVMLError",
    "NoDriverError",
    "NotPermittedError",
    "SetupError",
]


class AgentError(Exception):
    """Something on the node is not as it should be."""


class NVMLError(AgentError):
    """A call to the driver failed."""


class NoDriverError(NVMLError):
    """There is no driver to call."""


class GPULostError(NVMLError):
    """The GPU has fallen off the bus, or needs a reset."""


class NotPermittedError(NVMLError):
    """The call asks for more rights."""


class MPSError(AgentError):
    """The MPS control daemon did not do what it was asked."""


class MPSGoneError(MPSError):
    """There is no daemon."""


class MPSUnansweredError(MPSError):
    """It did not answer in time."""


class MPSGarbledError(MPSError):
    """Its answer means nothing to us."""


class SetupError(AgentError):
    """The GPU cannot be served as it is.

    Parameters
    ----------
    reason
        A word for programs, as in a condition.
    message
        What is the matter, and what to change.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
