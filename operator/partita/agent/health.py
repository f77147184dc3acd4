"""The problems of a GPU, and the conditions Ready and Faulted that are derived from them.

Each source sets and clears its own problem. Missing information never counts as healthy: an unknown
Xid, an unknown state and a missing answer are problems, and keep new jobs away.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from partita.agent.errors import GPULostError, NVMLError, SetupError
from partita.models import Condition

__all__ = ["RELEASED_WITHIN", "Health", "HealthProblem", "ServerConditions", "Source", "condition"]

RELEASED_WITHIN: Final = 30.0
"""Seconds to wait for the operator to release lost jobs before the GPU counts as healthy."""


def condition(
    kind: str, status: Literal["True", "False", "Unknown"], reason: str, message: str = ""
) -> Condition:
    """Return a condition of the GPUServer."""
    return Condition(type=kind, status=status, reason=reason, message=message)


class Source(StrEnum):
    """Where a problem was found. The conditions show the problem of the first source in this order.

    Failing hardware takes precedence over all others, for it explains them; then a problem with
    which all work is lost.
    """

    GPU = "gpu"
    """It is not acquired, or the driver does not reach it."""
    XID = "xid"
    RECOVERY = "recovery"
    UNKNOWN_XID = "unknown-xid"
    ECC = "ecc"
    MPS = "mps"
    MPS_OPTIONS = "mps-options"
    MPS_STARTING = "mps-starting"
    MPS_CANARY = "mps-canary"
    MPS_CLIENTS = "mps-clients"
    KUBELET = "kubelet"
    LIMITS = "limits"


_HARDWARE: Final = frozenset({Source.XID, Source.RECOVERY, Source.ECC, Source.UNKNOWN_XID})


@dataclass(frozen=True, slots=True)
class HealthProblem:
    """A problem of the GPU."""

    reason: str
    """Reason of the condition: one machine-readable word."""
    message: str
    """Description of the problem, and what to change if something can be changed."""
    faulted: bool = False
    """Whether all work on the GPU is lost. Otherwise the problem prevents only new jobs."""
    harmless: bool = False
    """Whether the GPU takes new jobs nevertheless: the problem explains only how programs ended."""

    @classmethod
    def of(cls, error: SetupError | NVMLError) -> "HealthProblem":
        """Return the problem of a GPU that cannot be acquired or reached."""
        return cls(error.reason, str(error), faulted=isinstance(error, GPULostError))


@dataclass(frozen=True, slots=True)
class ServerConditions:
    """The conditions of the GPUServer."""

    ready: bool
    reason: str
    message: str
    fault: HealthProblem | None
    """Problem with which all work on the GPU is lost; None if it is not lost."""


class Health:
    """The current problems of one GPU."""

    def __init__(self) -> None:
        self._problems: dict[Source, HealthProblem] = {}
        self._was_faulted = False

    def set(self, source: Source, problem: HealthProblem | None) -> bool:
        """Set the problem of a source, None if it has none; return whether this is new."""
        old = self._problems.pop(source, None)
        if problem is not None:
            self._problems[source] = problem
            self._was_faulted |= problem.faulted
        return problem != old

    def has(self, source: Source) -> bool:
        """Return whether a source has a problem."""
        return source in self._problems

    @property
    def faulted(self) -> bool:
        """Whether all work on the GPU is lost."""
        return any(problem.faulted for problem in self._problems.values())

    @property
    def serves_containers(self) -> bool:
        """Whether containers may start on the GPU.

        Unproven limits prevent only jobs: the probe Pod, which shows whether they work, must start.
        """
        return all(s is Source.LIMITS or p.harmless for s, p in self._problems.items())

    def conditions(self) -> ServerConditions:
        """Return the conditions that follow from the current problems."""
        found = {source: self._problems[source] for source in Source if source in self._problems}
        fault = next((problem for problem in found.values() if problem.faulted), None)
        if found:
            hardware = next((problem for s, problem in found.items() if s in _HARDWARE), None)
            shown = hardware or fault or next(iter(found.values()))
            ready = all(problem.harmless for problem in found.values())
            return ServerConditions(ready, shown.reason, shown.message, fault)
        reason = "Recovered" if self._was_faulted else "AgentReporting"
        return ServerConditions(True, reason, "", None)  # noqa: FBT003
