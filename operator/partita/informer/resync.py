"""Finds objects that were deleted without an event, during a gap in a watch.

After a broken watch (410 Gone) kopf lists again, but does not report which objects are missing. So
after each list of kopf the UIDs are listed again, and missing objects are removed from the state.
"""

import asyncio
from collections.abc import Callable

import structlog

from partita.informer.state import State
from partita.kube.client import Kind, Kube
from partita.kube.errors import KubernetesError

__all__ = ["Resync"]

SETTLE = 1.0
"""Seconds between the last page of kopf's list and the list of UIDs."""
RETRY_AFTER = 5.0
"""Seconds until a failed list is retried."""


class Resync:
    """Compares the state with the objects in the cluster."""

    def __init__(self, kube: Kube, state: State) -> None:
        self._kube = kube
        self._state = state
        self._pending: dict[Kind, asyncio.TimerHandle] = {}
        self._due: asyncio.Queue[Kind] = asyncio.Queue()
        self._failed: set[Kind] = set()
        self._log = structlog.get_logger().bind(part="resync")

    @property
    def complete(self) -> bool:
        """Whether no comparison has failed since its last success."""
        return not self._failed

    def relisted(self, kind: Kind) -> None:
        """Schedule a comparison after kopf's list; called for each page that kopf has read."""
        self._schedule(kind, SETTLE)

    async def run(self) -> None:
        """Compare due kinds until cancelled."""
        while True:
            kind = await self._due.get()
            try:
                uids, version = await self._kube.uids(kind)
            except KubernetesError as error:
                self._failed.add(kind)
                self._log.warning("not compared", kind=kind.plural, error=str(error))
                self._schedule(kind, RETRY_AFTER)
                continue
            self._failed.discard(kind)
            gone = self._state.forget_missing(kind.plural, uids, int(version))
            if gone:
                self._log.info("gone without an event", kind=kind.plural, count=gone)

    def _schedule(self, kind: Kind, after: float) -> None:
        loop = asyncio.get_running_loop()
        if kind in self._pending:
            self._pending[kind].cancel()
        put: Callable[[Kind], None] = self._due.put_nowait
        self._pending[kind] = loop.call_later(after, put, kind)
