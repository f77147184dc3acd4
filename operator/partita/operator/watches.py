"""Fills the operator's state: an informer for each kind, and kopf for the GPUPartitions."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TypeVar

import structlog

from partita.informer.informer import Apply, Informer
from partita.informer.missing import forget_missing
from partita.informer.state import State
from partita.kube.client import CLAIMS, PARTITIONS, Kind, Kube
from partita.kube.errors import NotFoundError, UnavailableError
from partita.times import Times

__all__ = ["Watches", "wait_until_available"]

T = TypeVar("T")


class Watches:
    """Lists all kinds once, then watches them.

    Parameters
    ----------
    feeds
        The function that applies the objects of each kind, in the order to list the kinds.
    """

    def __init__(
        self, kube: Kube, state: State, feeds: Mapping[Kind, Apply], times: Times = Times()
    ) -> None:
        self._informers = {
            kind: Informer(
                kube,
                kind,
                apply,
                forget_missing=partial(forget_missing, state, kind),
                required=True,
                times=times,
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
        for kind, informer in list(self._informers.items()):
            try:
                await wait_until_available(informer.list)
            except NotFoundError:
                if kind is not CLAIMS:
                    raise
                del self._informers[kind]
                log = structlog.get_logger().bind(part="operator")
                log.warning(
                    "the API server does not serve resource.k8s.io/v1, which needs Kubernetes "
                    "1.34: only SharedGPUJobs get slices of GPUs"
                )

    async def run(self) -> None:
        """Watch all kinds but GPUPartitions until cancelled.

        Raises
        ------
        NotFoundError
            If a kind is no longer served.
        """
        async with asyncio.TaskGroup() as group:
            for kind, informer in self._informers.items():
                if kind is not PARTITIONS:  # kopf watches these
                    group.create_task(informer.run())


async def wait_until_available(read: Callable[[], Awaitable[T]]) -> T:
    """Retry a read until the API server is available, which avoids a growing restart backoff."""
    while True:
        try:
            return await read()
        except UnavailableError as error:
            log = structlog.get_logger().bind(part="operator")
            log.warning("waiting for the API server", error=str(error))
