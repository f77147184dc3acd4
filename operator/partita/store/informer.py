"""The list-and-watch client: reports every object of a kind, and every change to one."""

import asyncio
import random
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

import structlog

from partita.kube.client import Kind, Kube
from partita.kube.errors import GoneError, KubernetesError, NotFoundError, UnavailableError
from partita.kube.watch import watch
from partita.times import Times

__all__ = ["Apply", "Informer"]

Json = dict[str, Any]

_STUB = ("name", "namespace", "uid", "resourceVersion")
"""The metadata that is remembered of an object."""


class Apply(Protocol):
    """Callback of an informer."""

    def __call__(self, body: Json, *, deleted: bool = False) -> None:
        """Apply the current version of an object, or its deletion."""


@dataclass
class Informer:
    """Lists the objects of one kind, then watches them.

    Parameters
    ----------
    kube
        The client with which to list and watch.
    kind
        The kind to watch.
    apply
        Called with each object. After a gap in the watch it is called again with each object that
        exists. For an object that was deleted during the gap it gets the name, namespace, UID and
        version only. An error in it is logged, so that one object does not stop the others.
    forget_missing
        Called after each list with the UIDs in it and its resource version, to forget what was
        deleted during a gap. By default the informer remembers the objects itself, and calls
        `apply` for those that are missing.
    order
        Sort key of the objects of a list. By default they are applied page by page.
    on_change
        Called after each list, after each change, and when the watch fails or recovers.
    required
        Whether it is an error that the kind is not served. By default it counts as an empty list.
    namespace
        Watch only the objects in this namespace; empty for all.
    times
        The pauses between two watches.
    """

    kube: Kube
    kind: Kind
    apply: Apply
    forget_missing: Callable[[Collection[str], int], object] | None = None
    order: Callable[[Json], int] | None = None
    on_change: Callable[[], None] = lambda: None
    required: bool = False
    namespace: str = ""
    times: Times = Times()

    def __post_init__(self) -> None:
        self._remembers = self.forget_missing is None
        self._known: dict[str, Json] = {}
        """If it remembers objects: name, namespace, UID and version of each, by UID."""
        self._forget_missing = self.forget_missing or self._remove_missing
        self._version = ""
        """Where to continue the watch; empty when a list is needed first."""
        self.synced = asyncio.Event()
        """Set once every object of the first list was passed to `apply`."""
        self.failing_since: datetime | None = None
        """Since when the watch fails; None if it works."""
        self._log = structlog.get_logger().bind(part="informer", kind=self.kind.plural)

    async def list(self) -> None:
        """List the objects once.

        Raises
        ------
        KubernetesError
            If the list, or a page of it, cannot be read.
        """
        version = ""
        present: set[str] = set()
        unordered: list[Json] = []
        try:
            async for page in self.kube.pages(self.kind, namespace=self.namespace):
                version = page.version
                if page.first:
                    present.clear()
                    unordered.clear()
                present.update(item["metadata"]["uid"] for item in page.items)
                if self.order:
                    unordered += page.items
                for item in () if self.order else page.items:
                    self._take(item)
                await asyncio.sleep(0)  # a page takes up to 50 ms
        except NotFoundError:
            if self.required:
                raise
        self._forget_missing(present, int(version) if version else sys.maxsize)
        if self.order is not None:
            unordered.sort(key=self.order)
        for item in unordered:
            self._take(item)
        self._version = version
        self.synced.set()
        self.on_change()

    async def start(self) -> str:
        """Return a version from which another client watches the kind; call it for each start.

        The objects are listed first, unless `list` was called last.

        Raises
        ------
        KubernetesError
            If the objects cannot be listed.
        """
        if not self._version:
            await self.list()
        version, self._version = self._version, ""
        return version

    async def run(self) -> None:
        """List and watch the objects until cancelled.

        Raises
        ------
        KubernetesError
            If the API server refuses the first list. Later failures are retried, unless a required
            kind is no longer served.
        """
        pause = self.times.watch_pause
        while True:
            try:
                if not self._version:
                    await self.list()
                if self._version:
                    await self._watch()
                    pause = self.times.watch_pause
            except GoneError:
                self._version = ""
            except KubernetesError as error:
                first = not (self.synced.is_set() or isinstance(error, UnavailableError))
                if first or (self.required and isinstance(error, NotFoundError)):
                    raise
                self._log.warning("watch failed", error=str(error))
                self._failing(datetime.now(UTC))
            await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 - jitter
            pause = min(2 * pause, self.times.longest_watch_pause)

    async def _watch(self) -> None:
        """Watch until the API server ends the watch, as it does every few minutes."""
        where = self.namespace
        async with watch(self.kube, self.kind, self._version, namespace=where) as events:
            self._failing(None)
            async for event, body in events:
                self._version = body["metadata"]["resourceVersion"]
                if event != "BOOKMARK":
                    self._take(body, deleted=event == "DELETED")
                    self.on_change()

    def _take(self, body: Json, *, deleted: bool = False) -> None:
        meta = body["metadata"]
        if deleted:
            self._known.pop(meta["uid"], None)
        elif self._remembers:
            self._known[meta["uid"]] = {"metadata": {key: meta.get(key, "") for key in _STUB}}
        try:
            self.apply(body, deleted=deleted)
        except Exception:  # noqa: BLE001 - a bug that affects one object must not stop the others
            key = meta.get("namespace", ""), meta.get("name", "")
            self._log.exception("object not applied", object="/".join(filter(None, key)))

    def _remove_missing(self, present: Collection[str], _: int) -> None:
        for uid in self._known.keys() - set(present):
            self._take(self._known[uid], deleted=True)

    def _failing(self, since: datetime | None) -> None:
        if (since is None) is not (self.failing_since is None):
            self.failing_since = since
            self.on_change()
