"""Scheduling policies for shared GPUs: which waiting jobs start now, and where."""

from partita_policies.errors import (
    PolicyError,
    PolicyImportError,
    PolicyParametersError,
    PolicyStartError,
    UnknownPolicyError,
)
from partita_policies.registry import available, create
from partita_policies.room import Refusal, Room, RoomError
from partita_policies.types import (
    GPU,
    SCHEMA_VERSION,
    Booking,
    Job,
    Parameters,
    Placement,
    Policy,
    Profile,
    Sharing,
    Snapshot,
    Step,
)

__all__ = [
    "GPU",
    "SCHEMA_VERSION",
    "Booking",
    "Job",
    "Parameters",
    "Placement",
    "Policy",
    "PolicyError",
    "PolicyImportError",
    "PolicyParametersError",
    "PolicyStartError",
    "Profile",
    "Refusal",
    "Room",
    "RoomError",
    "Sharing",
    "Snapshot",
    "Step",
    "UnknownPolicyError",
    "available",
    "create",
]
