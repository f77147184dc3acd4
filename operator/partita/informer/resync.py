"""Finds objects that went without an event, after a watch had a gap.

kopf answers a broken watch (410 Gone) with a new list, but tells nobody what is missing from
it. So whenever it lists, the UIDs are listed once more and what is not there is forgotten.
"""

import asyncio
from collections.abc import Callable

import structlog

from partita.informer.state import State
from partita.kube.client import Kind, Kube
from partita.kube.errors import KubernetesError

__all__ = ["Resync"]

SETTLE = 1.0
"""Seconds after the last page of kopf's list before ours is made."""
RETRY_AFTER = 5.0
"""Seconds before a list that failed is tried again."""


class Resync:
    """Compares what is remembered with what is there."""

    def __init__(self, kube: Kube, state: State) -> None:
        self._kube = kube
        self._state = state
        self._pending: dict[Kind, asyncio.TimerHandle] = {}
        self._due: asyncio.Queue[Kind] = asyncio.Queue()
        self._failed: set[Kind] = set()
        self._log = structlog.get_logger().bind(part="resync")

    @property
    def complete(self) -> bool:
        """Whether all that is remembered is there, as far as lists could be had."""
        return not self._failed

    def relisted(self, kind: Kind) -> None:
        """Have a kind compared, once its list is through: kopf has got a page of it."""
        self._schedule(kind, SETTLE)

    async def run(self) -> None:
        """Work for ever."""
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
