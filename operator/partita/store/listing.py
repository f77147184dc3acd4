"""Lists what the operator's decisions depend on once, for a reader that does not watch."""

import asyncio
from typing import Any

from partita.kube.client import CLAIMS, Kind, Kube
from partita.kube.errors import NotFoundError
from partita.store.state import State
from partita.store.watched_kinds import feeds

__all__ = ["Lists", "read_lists", "state_of"]

Lists = dict[Kind, list[dict[str, Any]]]
"""The objects of each kind, as the API server returned them."""


async def read_lists(kube: Kube) -> Lists:
    """List all objects that the operator's decisions depend on.

    Raises
    ------
    KubernetesError
        A kind cannot be listed.
    """
    kinds = list(feeds(State()))
    lists = await asyncio.gather(*(_items(kube, kind) for kind in kinds))
    return dict(zip(kinds, lists, strict=True))


async def _items(kube: Kube, kind: Kind) -> list[dict[str, Any]]:
    """List a kind; Kubernetes below 1.34 serves no claims."""
    try:
        return (await kube.list(kind))[0]
    except NotFoundError:
        if kind is not CLAIMS:
            raise
        return []


def state_of(lists: Lists) -> State:
    """Build the operator's state from lists, as the operator does when it starts."""
    state = State()
    for kind, feed in feeds(state).items():
        for item in lists.get(kind, ()):
            feed.apply(item)
    return state
