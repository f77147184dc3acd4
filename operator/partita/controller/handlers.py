"""kopf's handlers. They only translate: take the object into the state."""

from collections.abc import Callable
from typing import Any

import kopf

from partita.kube.client import (
    JOBS,
    NAMESPACES,
    NODES,
    PARTITIONS,
    PODS,
    PROFILES,
    SERVERS,
    Kind,
)
from partita.scheduling.state import State

__all__ = ["feeds", "register"]

Apply = Callable[..., None]


def feeds(state: State) -> dict[Kind, Apply]:
    """Return what takes in the objects of each kind, in the order in which to list them.

    Pods come after the ledgers that book for them and the jobs that own them.
    """
    return {
        NODES: state.apply_node,
        NAMESPACES: state.apply_namespace,
        PARTITIONS: state.apply_partition,
        PROFILES: state.apply_profile,
        SERVERS: state.apply_server,
        JOBS: state.apply_job,
        PODS: state.apply_pod,
    }


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
