"""The list-and-watch client: reports every object of a kind, and every change to one."""

import asyncio
import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Protocol

import structlog

from partita.kube.client import Kind, Kube
from partita.kube.errors import GoneError, KubernetesError, NotFoundError, UnavailableError
from partita.kube.watch import watch

__all__ = ["Apply", "Informer"]

Json = dict[str, Any]

FIRST_PAUSE = 0.05
"""Seconds before a watch is opened again; doubled after each failure."""
LONGEST_PAUSE = 2.0


class Apply(Protocol):
    """Callback of an informer."""

    def __call__(self, body: Json, *, deleted: bool = False) -> None:
        """Apply the current version of an object, or its deletion."""


class Informer:
    """Lists the objects of one kind, then watches them.

    Parameters
    ----------
    kube
        The client with which to list and watch.
    kind
        The kind to watch, in all namespaces.
    apply
        Called with each object. After a gap in the watch it is called again with each object that
        exists. For an object that was deleted during the gap it gets the name, namespace, UID and
        version only.
    order
        Sort key of the objects of a list.
    on_change
        Called after each list, after each change, and when the watch fails or recovers.
    """

    def __init__(
        self,
        kube: Kube,
        kind: Kind,
        apply: Apply,
        *,
        order: Callable[[Json], int] = lambda _: 0,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._kube = kube
        self._kind = kind
        self._apply = apply
        self._order = order
        self._on_change = on_change
        self._known: dict[str, Json] = {}
        """Name, namespace, UID and version of each object, by UID."""
        self._version = ""
        """Where to continue the watch; empty when a list is needed first."""
        self.synced = asyncio.Event()
        """Set once every object of the first list was passed to `apply`."""
        self.failing_since: datetime | None = None
        """Since when the watch fails; None if it works."""
        self._log = structlog.get_logger().bind(part="informer", kind=kind.plural)

    async def list(self) -> None:
        """List the objects once. A kind that is not served counts as an empty list.

        Raises
        ------
        KubernetesError
            If the list, or a page of it, cannot be read.
        """
        try:
            items, version = await self._kube.list(self._kind)
        except NotFoundError:
            items, version = [], ""
        present = {item["metadata"]["uid"] for item in items}
        for uid in self._known.keys() - present:
            self._take(self._known[uid], deleted=True)
        for item in sorted(items, key=self._order):
            self._take(item)
        self._version = version
        self.synced.set()
        self._on_change()

    async def run(self) -> None:
        """List and watch the objects until cancelled.

        Raises
        ------
        KubernetesError
            If the API server refuses the first list. Later failures are retried.
        """
        pause = FIRST_PAUSE
        while True:
            try:
                if not self._version:
                    await self.list()
                if self._version:
                    await self._watch()
                    pause = FIRST_PAUSE
            except GoneError:
                self._version = ""
            except KubernetesError as error:
                if not (self.synced.is_set() or isinstance(error, UnavailableError)):
                    raise
                self._log.warning("watch failed", error=str(error))
                self._failing(datetime.now(UTC))
            await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 - jitter
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _watch(self) -> None:
        """Watch until the API server ends the watch, as it does every few minutes."""
        async with watch(self._kube, self._kind, self._version) as events:
            self._failing(None)
            async for event, body in events:
                self._version = body["metadata"]["resourceVersion"]
                if event != "BOOKMARK":
                    self._take(body, deleted=event == "DELETED")
                    self._on_change()

    def _take(self, body: Json, *, deleted: bool = False) -> None:
        meta = body["metadata"]
        if deleted:
            self._known.pop(meta["uid"], None)
        else:
            stub = {key: meta.get(key, "") for key in ("name", "namespace", "uid")}
            self._known[meta["uid"]] = {
                "metadata": {**stub, "resourceVersion": meta["resourceVersion"]}
            }
        self._apply(body, deleted=deleted)

    def _failing(self, since: datetime | None) -> None:
        if (since is None) is not (self.failing_since is None):
            self.failing_since = since
            self._on_change()
