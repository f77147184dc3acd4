"""Lists in pages, so that a long list need not be in memory as a whole."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

from partita.kube.errors import GoneError

__all__ = ["PAGE", "ListPage", "pages"]

Json = dict[str, Any]

PAGE = 500
"""Number of objects in a page of a list, as in kubectl."""


class ListPage(NamedTuple):
    """A page of a list."""

    items: list[Json]
    version: str
    """The resource version of the list."""
    first: bool
    """Whether the list begins with this page; earlier pages no longer count."""


async def pages(
    read: Callable[[dict[str, str]], Awaitable[Json]], query: dict[str, str]
) -> AsyncIterator[ListPage]:
    """Yield a list page by page.

    If the continue token has expired, the whole list is requested at once, as client-go's pager
    does.

    Parameters
    ----------
    read
        Requests a page with the parameters of a query.
    query
        The parameters of each page, such as selectors.

    Raises
    ------
    KubernetesError
        If a page fails.
    """
    position = {"limit": str(PAGE)}
    while True:
        try:
            page = await read(query | position)
        except GoneError:
            if "continue" not in position:
                raise
            position = {}
            continue
        meta = page.get("metadata", {})
        first = "continue" not in position
        yield ListPage(page.get("items") or [], meta.get("resourceVersion", ""), first)
        if not meta.get("continue"):
            return
        position["continue"] = meta["continue"]
