"""How a job's Pod ended, read from its status."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from partita.models import Outcome

__all__ = ["PodOutcome", "read_outcome"]


@dataclass(frozen=True, slots=True)
class PodOutcome:
    """Where a Pod stands, and how it ended."""

    finished: bool = False
    """Whether the Pod is over; all below but `stuck` and the start speak of a finished one."""
    outcome: Outcome | None = None
    """How it ended; None while it is not over."""
    exit_code: int | None = None
    """Exit code of the container that decided it."""
    message: str = ""
    """What the program, or Kubernetes, said last; what to do where we know."""
    started_at: datetime | None = None
    """When its first container started."""
    finished_at: datetime | None = None
    """When its last container ended; never before `started_at`."""
    running: bool = False
    """Whether a container of the program runs now."""
    stuck: str = ""
    """Why a Pod that is not over cannot start (image pull, configuration); empty if it can."""


def read_outcome(status: Mapping[str, Any]) -> PodOutcome: ...
