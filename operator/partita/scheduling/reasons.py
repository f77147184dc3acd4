"""Why a job waits: a machine-readable reason and a message."""

from dataclasses import dataclass
from enum import StrEnum

from partita.models.quantities import gib

__all__ = ["Reason", "WaitingReason", "for_room", "gib", "not_admitted", "stalled", "warns"]


class Reason(StrEnum):
    """Why a job waits, or why it ends without waiting; and the state of a claim with a slice."""

    # Only a change of YAML helps.
    PARTITION_NOT_FOUND = "PartitionNotFound"
    PARTITION_UNREADABLE = "PartitionUnreadable"
    NAMESPACE_NOT_ALLOWED = "NamespaceNotAllowed"
    INVALID_SPEC = "InvalidSpec"
    NEVER_FITS = "NeverFits"
    NO_POD = "NoPod"
    # Nothing helps: the job ends.
    OUT_OF_MEMORY = "OutOfMemory"
    # Time helps.
    NO_GPU_READY = "NoGPUReady"
    INSUFFICIENT_MEMORY = "InsufficientMemory"
    TOO_MANY_JOBS = "TooManyJobs"
    TOO_MANY_CLIENTS = "TooManyClients"
    GPU_NOT_IDLE = "GPUNotIdle"
    INSUFFICIENT_NODE = "InsufficientNodeResources"
    OTHER_PRODUCT = "OtherProduct"
    NODE_NOT_ELIGIBLE = "NodeNotEligible"
    GPU_HELD = "GPUHeld"
    QUOTA_EXCEEDED = "QuotaExceeded"
    BEHIND_SERVICES = "BehindServices"
    BEHIND_OWN_JOBS = "BehindOwnJobs"
    SERVICES_LIMIT = "ServicesLimitReached"
    NO_ROOM_FOR_SURGE = "NoRoomForSurge"
    BACK_OFF = "BackOff"
    POD_FORBIDDEN = "PodForbidden"
    WEBHOOK_FAILED = "AdmissionWebhookFailed"
    POLICY_WAITS = "PolicyWaits"
    SCHEDULING = "Scheduling"
    NOT_ADMITTED = "SchedulingGated"
    ENDING = "Ending"
    SUSPENDED = "Suspended"
    # It does not wait: a claim that has a slice.
    ALLOCATED = "Allocated"
    IDLE = "Idle"


_STALLED = frozenset(
    {
        Reason.PARTITION_NOT_FOUND,
        Reason.PARTITION_UNREADABLE,
        Reason.NAMESPACE_NOT_ALLOWED,
        Reason.INVALID_SPEC,
        Reason.NEVER_FITS,
        Reason.NO_POD,
    }
)


def stalled(reason: str) -> bool:
    """Return whether only a change of YAML helps (kstatus: `Stalled`)."""
    return reason in _STALLED


def for_room(reason: str) -> bool:
    """Return whether it waits for GPUs that others have, not for a change of YAML or of a limit."""
    return not stalled(reason) and reason not in {Reason.QUOTA_EXCEEDED, Reason.SERVICES_LIMIT}


def warns(reason: str) -> bool:
    """Return whether the Event about a reason is a Warning: a user may have to change something."""
    return stalled(reason) or reason in {
        Reason.OUT_OF_MEMORY,
        Reason.POD_FORBIDDEN,
        Reason.WEBHOOK_FAILED,
    }


@dataclass(frozen=True, slots=True)
class WaitingReason:
    """Why a job waits."""

    reason: Reason
    message: str


def not_admitted(gate: str) -> WaitingReason:
    """Return why nothing is allocated to a Pod with the scheduling gate of another controller."""
    said = f"its Pod is not admitted yet: the controller of scheduling gate {gate} removes it first"
    return WaitingReason(Reason.NOT_ADMITTED, said)
