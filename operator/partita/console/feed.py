"""Keeps the content of the page up to date, with an informer for each kind."""

import asyncio
from collections.abc import Collection
from functools import partial
from typing import Final

from partita.console.page_state import PageState, page_state_of
from partita.kube.client import JOBS, NAMESPACES, NODES, PARTITIONS, Kind, Kube
from partita.kube.errors import ForbiddenError
from partita.kube.operator_lease import check_operator
from partita.store.informer import Apply, Informer
from partita.store.missing import forget_missing
from partita.store.state import State
from partita.store.watched_kinds import feeds
from partita.times import Times

__all__ = ["Feed"]

_NOT_SHOWN: Final[Collection[Kind]] = {NODES, NAMESPACES}
_NEEDED: Final[Collection[Kind]] = {PARTITIONS, JOBS}
"""Kinds without which there is nothing to show."""


class Feed:
    """The cluster's current state and the page state that is computed from it.

    Parameters
    ----------
    kube
        A client that may list and watch partitions and jobs. Other kinds are left out if it may
        not list them.
    times
        How often the page may change, and the operator is looked for.
    namespace
        What may not be listed in all namespaces is listed in this one; empty for none.
    """

    def __init__(self, kube: Kube, times: Times = Times(), *, namespace: str = "") -> None:
        self._times = times
        self._kube = kube
        self._operator_problem = ""
        self.state = State()
        self.version = 0
        """Number of the version; it increases with changes, once per `Times.page_pause` at most."""
        self._announced = asyncio.Event()
        self._announced_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._page: PageState | None = None
        self.closed = False
        """Whether there will be no newer version."""
        self._namespace = namespace
        self.left_out: list[str] = []
        """What may not be listed: kinds, or kinds outside the namespace."""
        self._informers: list[Informer] = []

    @property
    def page(self) -> PageState:
        """Page state of this version without restrictions; computed once for all viewers."""
        if self._page is None:
            failing = [one.failing_since for one in self._informers if one.failing_since]
            self._page = page_state_of(
                self.state,
                min(failing, default=None),
                self._operator_problem,
                left_out=sorted(self.left_out),
            )
        return self._page

    async def newer(self, version: int) -> None:
        """Wait for a later version than `version`, or until the feed is closed."""
        while self.version <= version and not self.closed:
            await self._announced.wait()

    def close(self) -> None:
        """End all calls of `newer`."""
        self.closed = True
        self._announced.set()

    async def load(self) -> None:
        """List all kinds once, and check whether an operator is running.

        Raises
        ------
        KubernetesError
            A list cannot be read.
        """
        kinds = ((k, f.apply) for k, f in feeds(self.state).items() if k not in _NOT_SHOWN)
        lists = (self._list(kind, apply) for kind, apply in kinds)
        await asyncio.gather(*lists, self._check_operator())

    async def _list(self, kind: Kind, apply: Apply, namespace: str = "") -> None:
        """List a kind, in the own namespace if it may not be listed in all."""
        informer = Informer(
            self._kube,
            kind,
            apply,
            forget_missing=partial(forget_missing, self.state, kind),
            on_change=self._changed,
            namespace=namespace,
            times=self._times,
        )
        try:
            await informer.list()
        except ForbiddenError:
            if kind.namespaced and self._namespace != namespace:
                await self._list(kind, apply, self._namespace)
            elif kind in _NEEDED:
                raise
            else:
                self.left_out.append(kind.plural)
            return
        self._informers.append(informer)
        if namespace:
            self.left_out.append(f"{kind.plural} outside namespace {namespace}")

    async def run(self) -> None:
        """Watch all kinds, and check whether an operator is running, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for informer in self._informers:
                tasks.create_task(informer.run())
            while True:
                await asyncio.sleep(self._times.check_operator)
                await self._check_operator()

    async def _check_operator(self) -> None:
        problem = await check_operator(self._kube)
        if problem != self._operator_problem:
            self._operator_problem = problem
            self._changed()

    def _changed(self) -> None:
        self.state.queues.clear()  # only the operator processes the work queues
        if self._timer is None and not self.closed:
            loop = asyncio.get_running_loop()
            at = max(loop.time(), self._announced_at + self._times.page_pause)
            self._timer = loop.call_at(at, self._announce)

    def _announce(self) -> None:
        self._timer = None
        self._announced_at = asyncio.get_running_loop().time()
        self.version += 1
        self._page = None
        self._announced.set()
        self._announced.clear()
