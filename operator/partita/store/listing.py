"""Lists what the operator's decisions depend on once, for a reader that does not watch."""

import asyncio
from typing import Any

from partita.kube.client import Kind, Kube
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
    lists = await asyncio.gather(*map(kube.list, kinds))
    return {kind: items for kind, (items, _) in zip(kinds, lists, strict=True)}


def state_of(lists: Lists) -> State:
    """Build the operator's state from lists, as the operator does when it starts."""
    state = State()
    for kind, feed in feeds(state).items():
        for item in lists.get(kind, ()):
            feed.apply(item)
    return state
