"""Reads the objects of a cluster as the operator does, and says which are missing."""

import asyncio
from collections.abc import Collection
from typing import Any

from partita.cli.terminal import warn
from partita.kube.client import Kind, Kube
from partita.kube.errors import ForbiddenError
from partita.store import listing
from partita.store.listing import Lists, read_lists
from partita.store.state import State
from partita.store.watched_kinds import feeds

__all__ = ["list_visible", "read_state", "read_visible", "state_of"]


async def read_state(kube: Kube) -> State:
    """Read the current state of the cluster."""
    return state_of(await read_lists(kube))


def state_of(lists: Lists) -> State:
    """Build the operator's state from lists; warn about objects that cannot be read."""
    state = listing.state_of(lists)
    for one in state.unreadable:
        warn(f"{one.plural} {one.key} is left out, it cannot be read: {one.problem}")
    return state


async def read_visible(
    kube: Kube, namespace: str, needed: Collection[Kind] = ()
) -> tuple[Lists, list[str]]:
    """List what decisions depend on: of the whole cluster where allowed, else of one namespace.

    Parameters
    ----------
    needed
        Kinds without which there is nothing to show.

    Returns
    -------
    tuple
        The objects, and the kinds of which some or all may not be listed.

    Raises
    ------
    ForbiddenError
        A needed kind may not even be listed in the namespace.
    """
    kinds = list(feeds(State()))
    answers = await asyncio.gather(*(list_visible(kube, kind, namespace, needed) for kind in kinds))
    found = dict(zip(kinds, (items for items, _ in answers), strict=True))
    return found, [missing for _, missing in answers if missing]


async def list_visible(
    kube: Kube, kind: Kind, namespace: str, needed: Collection[Kind] = ()
) -> tuple[list[dict[str, Any]], str]:
    """List a kind like `read_visible`, and return what is missing."""
    try:
        return (await kube.list(kind))[0], ""
    except ForbiddenError:
        if not kind.namespaced:
            return [], kind.plural
    try:
        here = (await kube.list(kind, namespace=namespace))[0]
    except ForbiddenError:
        if kind in needed:
            raise
        return [], kind.plural
    return here, f"{kind.plural} outside namespace {namespace}"
