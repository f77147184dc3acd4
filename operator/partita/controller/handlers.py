"""kopf's handlers. They only translate: take the object into the state."""

from collections.abc import Callable
from typing import Any

import kopf

from partita.controller.feeds import Apply, feeds
from partita.kube.client import Kind
from partita.scheduling.state import State

__all__ = ["register"]


def register(
    registry: kopf.OperatorRegistry, state: State, relisted: Callable[[Kind], None]
) -> None:
    """Have the watches of all kinds feed the state.

    Parameters
    ----------
    relisted
        Told each kind of which kopf made a new list: that closes a gap in its watch, in which
        objects may have gone without an event.
    """
    for kind, apply in feeds(state).items():
        _watch(registry, kind, apply, relisted)


def _watch(
    registry: kopf.OperatorRegistry, kind: Kind, apply: Apply, relisted: Callable[[Kind], None]
) -> None:
    @kopf.on.event(kind.group, kind.version, kind.plural, id=kind.plural, registry=registry)
    async def handler(event: Any, **_: Any) -> None:
        apply(event["object"], deleted=event["type"] == "DELETED")
        if event["type"] is None:
            relisted(kind)
