"""kopf's handlers. They only pass each object to the state."""

from collections.abc import Mapping
from typing import Any

import kopf

from partita.informer.informer import Apply
from partita.kube.client import Kind

__all__ = ["register"]


def register(registry: kopf.OperatorRegistry, feeds: Mapping[Kind, Apply]) -> None:
    """Register handlers that pass the objects of watched kinds to the state.

    Parameters
    ----------
    feeds
        The function that applies the objects of each kind.
    """
    for kind, apply in feeds.items():
        _watch(registry, kind, apply)


def _watch(registry: kopf.OperatorRegistry, kind: Kind, apply: Apply) -> None:
    @kopf.on.event(kind.group, kind.version, kind.plural, id=kind.plural, registry=registry)
    async def handler(event: Any, **_: Any) -> None:
        apply(event["object"], deleted=event["type"] == "DELETED")
