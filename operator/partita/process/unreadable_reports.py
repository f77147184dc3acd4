"""Reports objects that cannot be read: in the log, by an Event and in a condition."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import structlog

from partita.kube.client import JOBS, PARTITIONS, Kind, Kube
from partita.kube.errors import ConflictError, KubernetesError, NotFoundError
from partita.kube.events import Events
from partita.kube.namespace_slots import NamespaceSlots
from partita.models import Condition, ObjectMeta
from partita.models.conditions import READABLE, clipped
from partita.models.crd import RESOURCES
from partita.store.state import State
from partita.store.unreadable import Unreadable

__all__ = ["UnreadableReports"]

_KINDS = {kind.plural: kind for kind in (PARTITIONS, JOBS)}
"""Kinds whose status only the operator writes."""
_MODELS = {resource.plural: resource.model for resource in RESOURCES}


@dataclass
class UnreadableReports:
    """Reports each problem of each object once."""

    kube: Kube
    state: State
    events: Events

    def __post_init__(self) -> None:
        self._reported: dict[str, str] = {}
        """The problem that was reported last, by UID."""
        self._slots = NamespaceSlots(most=4, of_a_namespace=1)
        self._log = structlog.get_logger().bind(part="unreadable")

    async def run(self) -> None:
        """Report until cancelled, so that no report waits for the answer to another."""
        async with asyncio.TaskGroup() as group:
            while True:
                for uid in await self.state.unreadable.changed.get(1):
                    group.create_task(self._look_at(uid))
                await self.kube.turns.next()

    async def _look_at(self, uid: str) -> None:
        if (one := self.state.unreadable.get(uid)) is None:
            self._reported.pop(uid, None)
            return
        if self._reported.get(uid) != one.problem:
            self._reported[uid] = one.problem
            self._report(one)
        if one.plural in _KINDS and not _has_condition(one):
            await self._write(_KINDS[one.plural], one)

    def _report(self, one: Unreadable) -> None:
        self._log.warning("unreadable", resource=one.plural, object=one.key, problem=one.problem)
        meta = ObjectMeta(
            name=one.name,
            namespace=one.namespace,
            uid=one.uid,
            resource_version=str(one.version),
        )
        about = _MODELS[one.plural].model_construct(metadata=meta)
        self.events.warn(about, "Unreadable", _message(one))

    async def _write(self, kind: Kind, one: Unreadable) -> None:
        try:
            async with self._slots.of(one.namespace):
                await self.kube.patch(
                    kind,
                    one.name,
                    {"status": {"conditions": _with(one)}},
                    namespace=one.namespace,
                    subresource="status",
                    resource_version=str(one.version),
                )
        except (ConflictError, NotFoundError):
            return  # the watch delivers a newer version
        except KubernetesError as error:
            self._log.warning("condition not written", object=one.key, error=str(error))
            self.state.unreadable.changed.add_after(one.uid, self.kube.times.retry_after)


def _message(one: Unreadable) -> str:
    return clipped(f"{one.problem}. The last readable version stays in effect until then")


def _has_condition(one: Unreadable) -> bool:
    found = [(c.get("status"), c.get("message")) for c in one.conditions if c["type"] == READABLE]
    return found == [("False", _message(one))]


def _with(one: Unreadable) -> list[dict[str, Any]]:
    """Return its conditions, with the one that describes the problem."""
    new = Condition(
        type=READABLE,
        status="False",
        reason="Unreadable",
        message=_message(one),
        last_transition_time=datetime.now(UTC),
        observed_generation=one.generation,
    )
    return [c for c in one.conditions if c["type"] != READABLE] + [new.dump()]
