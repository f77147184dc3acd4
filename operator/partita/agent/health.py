"""Whether jobs may be placed on the GPU, whether those on it are lost, and why.

What is wrong is noted by its source; each source says when it is well again. Nothing is healthy
because nobody looked: an unknown Xid, an unknown state and a missing answer count against it.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

__all__ = [
    "FATAL_TO_CLIENTS",
    "QUIET",
    "Health",
    "ServerConditions",
    "Source",
    "Trouble",
    "XidKind",
    "xid_kind",
]


class XidKind(StrEnum):
    """What an Xid means for those who share the GPU."""

    APPLICATION = "application"
    """A program's own fault: the GPU is well, and MPS tells if its neighbours are not."""
    FAULT = "fault"
    """All work on the GPU is lost; it may go on by itself."""
    RESET = "reset"
    """All work is lost, and the GPU needs a reset."""


# https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html. Those that leave the GPU
# healthy are also those that NVIDIA's device plugin passes over (k8s-device-plugin,
# internal/rm/health.go), and three of the catalogue that tell of no lasting harm.
_APPLICATION: Final = {
    13: "graphics engine exception",
    31: "GPU memory page fault",
    43: "GPU stopped processing",
    45: "preemptive cleanup, due to previous errors",
    63: "row remapping recorded",
    68: "video processor exception",
    92: "high single-bit ECC error rate",
    94: "contained ECC error",
    109: "context switch timeout",
}
FATAL_TO_CLIENTS: Final = frozenset({13, 31})
"""Faults of one program that, where programs share the GPU by MPS, all of them get: "a fatal GPU
exception" is reported to every client (https://docs.nvidia.com/deploy/mps/latest/, "Error
Containment"). Not 43 and 45, which come with a program that is merely ended, too."""
_RESET: Final = {
    48: "double-bit ECC error",
    64: "row remapping failed",
    74: "NVLink error",
    79: "the GPU has fallen off the bus",
    95: "uncontained ECC error",
    119: "GSP does not answer",
    120: "GSP error",
    140: "unrecovered ECC error",
    154: "GPU recovery action changed",
}

QUIET: Final = {XidKind.FAULT: 60.0, XidKind.RESET: 300.0}
"""Seconds without another one after which a GPU that answers counts as healthy again. An
assumption: NVML has no event for "it is well", and a GPU that was reset looks like any other."""


def xid_kind(xid: int) -> tuple[XidKind, str]:
    """Tell what an Xid means; one that is in no list is a fault."""
    if xid in _APPLICATION:
        return XidKind.APPLICATION, _APPLICATION[xid]
    if xid in _RESET:
        return XidKind.RESET, _RESET[xid]
    return XidKind.FAULT, "see NVIDIA's Xid catalogue"


class Source(StrEnum):
    """Who says that something is wrong; the first one that does is told of first."""

    GPU = "gpu"
    XID = "xid"
    ECC = "ecc"
    MPS = "mps"
    SETUP = "setup"
    MPS_STARTING = "mps-starting"
    KUBELET = "kubelet"
    TEMPERATURE = "temperature"


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that is wrong."""

    reason: str
    """A word for programs."""
    message: str
    """What it is, and what to do where there is something to do."""
    faulted: bool = False
    """Whether every program on the GPU is lost; else there is only no place for new ones."""


@dataclass(frozen=True, slots=True)
class ServerConditions:
    """The conditions of the GPUServer."""

    ready: bool
    reason: str
    message: str
    fault: Trouble | None
    """Why all programs are lost; None while they are not."""


class Health:
    """What is wrong with a GPU at the moment."""

    def __init__(self) -> None:
        self._troubles: dict[Source, Trouble] = {}
        self._was_faulted = False

    def note(self, source: Source, trouble: Trouble) -> bool:
        """Note what is wrong; tell whether that is new."""
        new = self._troubles.get(source) != trouble
        self._troubles[source] = trouble
        self._was_faulted |= trouble.faulted
        return new

    def clear(self, source: Source) -> bool:
        """Note that it is well again; tell whether it was not."""
        return self._troubles.pop(source, None) is not None

    def has(self, source: Source) -> bool:
        """Tell whether something of this source is wrong."""
        return source in self._troubles

    @property
    def faulted(self) -> bool:
        """Whether every program on the GPU is lost."""
        return any(trouble.faulted for trouble in self._troubles.values())

    def verdict(self) -> ServerConditions:
        """Judge by all that is known."""
        found = [self._troubles[source] for source in Source if source in self._troubles]
        fault = next((trouble for trouble in found if trouble.faulted), None)
        if found:
            first = fault or found[0]
            return ServerConditions(
                ready=False, reason=first.reason, message=first.message, fault=fault
            )
        reason = "Recovered" if self._was_faulted else "AgentReporting"
        return ServerConditions(ready=True, reason=reason, message="", fault=None)
