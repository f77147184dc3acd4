"""What follows from the reconciliation of a job or a claim, for the loop to carry out."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from partita.models.events import UserEvent
from partita.store.claim_view import ClaimView
from partita.store.finished_jobs import FinishedJob
from partita.store.views import PodView
from partita_policies.types import Job

__all__ = ["Actions", "PlacementDetails"]


@dataclass(frozen=True, slots=True)
class PlacementDetails:
    """What a job or a claim has got in a cycle."""

    job: Job
    pod: PodView
    amount: str
    """The memory on each GPU."""
    where: str
    """The GPUServers and their node."""
    policy: str
    """Who chose them."""


@dataclass(frozen=True, slots=True)
class Actions:
    """Everything to do for a job or a claim now."""

    writes: bool = False
    """Whether its claim, its Pod or its history must be written."""
    events: Sequence[UserEvent] = ()
    delete: Sequence[PodView | ClaimView] = ()
    """Its Pods and claims to delete."""
    grace: int | None = None
    """Grace period of these Pods in seconds; None for their own."""
    read_missing: bool = False
    """Whether an attempt is allocated whose Pod or claim may or may not exist."""
    read: FinishedJob | None = None
    """The finished job that must be read whole, because anything of it turned up."""
    expired: FinishedJob | None = None
    """The job to delete, because its time to live is over."""
    wake: datetime | None = None
    """When to reconcile again even if nothing changes."""
