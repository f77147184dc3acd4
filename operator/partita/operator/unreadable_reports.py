"""Tells of objects that cannot be read: in the log, by an Event, and in a condition."""

from datetime import UTC, datetime
from typing import Any

import structlog

from partita.informer.state import State
from partita.informer.unreadable import Unreadable
from partita.kube.client import JOBS, PARTITIONS, Kind, Kube
from partita.kube.errors import ConflictError, KubernetesError, NotFoundError
from partita.kube.events import Events
from partita.models import Condition, ObjectMeta
from partita.models.base import READABLE, clipped
from partita.models.crd import RESOURCES

__all__ = ["UnreadableReports"]

_KINDS = {kind.plural: kind for kind in (PARTITIONS, JOBS)}
"""Those whose status is the operator's alone."""
_MODELS = {resource.plural: resource.model for resource in RESOURCES}


class UnreadableReports:
    """Tells of each problem of each object once."""

    def __init__(self, kube: Kube, state: State, events: Events) -> None:
        self._kube = kube
        self._state = state
        self._events = events
        self._told: dict[str, str] = {}
        """What was told last, by UID."""
        self._refused: dict[str, str] = {}
        """Of which problem the API server takes no condition, by UID."""
        self._log = structlog.get_logger().bind(part="unreadable")

    async def run(self) -> None:
        """Work for ever."""
        objects = self._state.unreadable
        while True:
            await objects.changed.wait()
            objects.changed.clear()
            found = list(objects)
            for kept in (self._told, self._refused):
                for uid in kept.keys() - {one.uid for one in found}:
                    del kept[uid]
            for one in found:
                if self._told.get(one.uid) != one.problem:
                    self._told[one.uid] = one.problem
                    self._tell(one)
                if one.plural in _KINDS and not _says_so(one):
                    await self._write(_KINDS[one.plural], one)

    def _tell(self, one: Unreadable) -> None:
        self._log.warning("unreadable", resource=one.plural, object=one.key, problem=one.problem)
        meta = ObjectMeta(
            name=one.name,
            namespace=one.namespace,
            uid=one.uid,
            resource_version=str(one.version),
        )
        about = _MODELS[one.plural].model_construct(metadata=meta)
        self._events.warn(about, "Unreadable", _message(one))

    async def _write(self, kind: Kind, one: Unreadable) -> None:
        if self._refused.get(one.uid) == one.problem:
            return
        try:
            await self._kube.patch(
                kind,
                one.name,
                {"status": {"conditions": _with(one)}},
                namespace=one.namespace,
                subresource="status",
                resource_version=str(one.version),
            )
        except (ConflictError, NotFoundError):
            return  # a newer version is on its way, and is looked at when it comes
        except KubernetesError as error:
            # Before Kubernetes 1.30 no status of an object is taken that breaks a rule elsewhere.
            self._refused[one.uid] = one.problem
            self._log.warning("condition not written", object=one.key, error=str(error))


def _message(one: Unreadable) -> str:
    return clipped(f"{one.problem}. Until it is corrected, what was last read stays in force")


def _says_so(one: Unreadable) -> bool:
    said = [(c.get("status"), c.get("message")) for c in one.conditions if c["type"] == READABLE]
    return said == [("False", _message(one))]


def _with(one: Unreadable) -> list[dict[str, Any]]:
    """Return its conditions with one that says what is wrong."""
    new = Condition(
        type=READABLE,
        status="False",
        reason="Unreadable",
        message=_message(one),
        last_transition_time=datetime.now(UTC),
        observed_generation=one.generation,
    )
    return [c for c in one.conditions if c["type"] != READABLE] + [new.dump()]
