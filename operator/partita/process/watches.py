"""Fills the operator's state: informers list all kinds, and they or kopf watch them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TypeVar

import kopf
import structlog

from partita.handlers import FOLLOWED, REGISTRY, Operator, Version
from partita.kube.client import Kind, Kube
from partita.kube.errors import ForbiddenError, UnavailableError
from partita.process.task_shutdown import end
from partita.store.informer import Apply, Informer
from partita.store.missing import forget_missing
from partita.store.state import State
from partita.times import Times

__all__ = ["Watches", "follow", "wait_until_available"]

T = TypeVar("T")


class Watches:
    """Lists all kinds once, then watches them.

    Parameters
    ----------
    feeds
        The function that applies the objects of each kind, in the order to list the kinds.
    """

    def __init__(self, kube: Kube, state: State, feeds: Mapping[Kind, Apply]) -> None:
        self._times = kube.times
        self._informers = {
            kind: Informer(
                kube,
                kind,
                apply,
                forget_missing=partial(forget_missing, state, kind),
                required=True,
                times=kube.times,
            )
            for kind, apply in feeds.items()
        }

    @property
    def complete(self) -> bool:
        """Whether no watch is failing, so that the state has every object and change."""
        return all(one.failing_since is None for one in self._informers.values())

    async def list(self) -> None:
        """List all kinds, one after the other, as soon as the API server is available.

        Raises
        ------
        KubernetesError
            If the API server refuses a list.
        """
        for informer in self._informers.values():
            await wait_until_available(informer.list, self._times)

    def versions(self) -> dict[Kind, Version]:
        """Return by kind that kopf watches what returns a version from which to do so."""
        return {
            kind: partial(wait_until_available, self._informers[kind].start, self._times)
            for kind in FOLLOWED
        }

    async def run(self) -> None:
        """Watch the other kinds than kopf until cancelled.

        Raises
        ------
        NotFoundError
            If a kind is no longer served.
        """
        async with asyncio.TaskGroup() as group:
            for kind, informer in self._informers.items():
                if kind not in FOLLOWED:
                    group.create_task(informer.run())


async def follow(operator: Operator, stop: asyncio.Event) -> None:
    """Have kopf call the handlers until the operator is stopped, by a signal or by `stop`.

    Raises
    ------
    Exception
        kopf cannot continue, for example because a CRD was deleted.
    """
    # Not kopf.operator(): at its end it waits for, and then cancels, every task of the event loop
    # that was created after it, including those of other components.
    tasks = await kopf.spawn_tasks(
        registry=REGISTRY, standalone=True, clusterwide=True, stop_flag=stop, memo=operator
    )
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end(lambda: tasks, operator.kube.times)
    for task in tasks:
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error


async def wait_until_available(read: Callable[[], Awaitable[T]], times: Times) -> T:
    """Retry a read until the API server serves it, which avoids a growing restart backoff.

    An API server that has just started refuses what it will allow once it knows all roles.
    """
    while True:
        try:
            return await read()
        except (UnavailableError, ForbiddenError) as error:
            log = structlog.get_logger().bind(part="operator")
            log.warning("waiting for the API server", error=str(error))
            if isinstance(error, ForbiddenError):  # the client has not waited, as it has for others
                await asyncio.sleep(times.retry_after)
