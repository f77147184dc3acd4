"""Conditions, as in Kubernetes' own objects (`metav1.Condition`)."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from partita.models.base import Count, Model, Shared, Time, at_most
from partita.models.topology import keyed_by

__all__ = ["READABLE", "Condition", "ConditionChanges", "Conditions", "clipped", "set_condition"]

_LONGEST_MESSAGE = 32768
"""Maximum length of a condition's message, as in `metav1.Condition`."""


def clipped(message: str) -> str:
    """Cut a message, such as one that names thousands of GPUs, to the limit of a condition."""
    end = "..."
    fits = len(message) <= _LONGEST_MESSAGE
    return message if fits else message[: _LONGEST_MESSAGE - len(end)] + end


class Condition(Model):
    """One aspect of an object's state, as in Kubernetes' own conditions."""

    model_config = ConfigDict(
        json_schema_extra={
            "required": ["type", "status", "reason", "message", "lastTransitionTime"]
        }
    )

    type: Annotated[Shared, Field(max_length=316)]
    """The aspect, such as `Ready`."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""
    reason: Annotated[Shared, Field(max_length=1024, json_schema_extra=at_most(minLength=1))] = ""
    """Why it holds or not, as one word for programs."""
    message: Annotated[Shared, Field(max_length=_LONGEST_MESSAGE)] = ""
    """Why it holds or not and what to do, as a sentence."""
    last_transition_time: Time | None = None
    """When `status` last changed."""
    observed_generation: Count | None = None
    """The `metadata.generation` to which it belongs."""


READABLE = "Readable"
"""Type of the condition of an object that the operator cannot parse. Other objects do not have it.
"""

Conditions = Annotated[
    tuple[Condition, ...], Field(json_schema_extra={**keyed_by("type"), **at_most(maxItems=100)})
]


def set_condition(
    conditions: Sequence[Condition], new: Condition, now: datetime
) -> tuple[Condition, ...]:
    """Replace the condition of the same type. Its time changes only if its status changes."""
    old = next((c for c in conditions if c.type == new.type), None)
    since = old.last_transition_time if old is not None and old.status == new.status else None
    new = new.model_copy(update={"last_transition_time": since or now})
    if old is None:
        return (*conditions, new)
    return tuple(new if c.type == new.type else c for c in conditions)


class ConditionChanges:
    """The conditions of an object while they are set anew.

    Parameters
    ----------
    conditions
        Those that it has.
    generation
        The `metadata.generation` to which the new ones belong.
    readable
        Whether the object can be read, so that the condition `READABLE` is removed.
    """

    def __init__(
        self,
        conditions: Sequence[Condition],
        generation: int,
        now: datetime,
        *,
        readable: bool,
    ) -> None:
        self.conditions = tuple(c for c in conditions if not (readable and c.type == READABLE))
        self._generation = generation
        self._now = now

    def put(self, kind: str, *, holds: bool, reason: str, message: str = "") -> None:
        """Set the condition of a type."""
        new = Condition(
            type=kind,
            status="True" if holds else "False",
            reason=reason,
            message=clipped(message),
            observed_generation=self._generation,
        )
        self.conditions = set_condition(self.conditions, new, self._now)
