"""Writes the partitions' statuses, each at most once in a while."""

import asyncio
from collections.abc import Callable

import structlog

from partita.informer.state import State
from partita.kube.client import PARTITIONS, Kube
from partita.kube.errors import KubernetesError, NotFoundError
from partita.models import GPUPartitionStatus
from partita.partitions.changes import Changes
from partita.reconcile.job_status import merge_diff

__all__ = ["PartitionStatuses"]

_PERIOD = 1.0
"""Least seconds between two writes about one partition: every allocation changes its numbers. Where
all writes take longer than that, they rest as long: the API server has more to do."""


class PartitionStatuses:
    """The one writer of GPUPartition statuses.

    Parameters
    ----------
    compute
        Returns the status that a partition should have; None if it is gone.
    """

    def __init__(
        self, kube: Kube, state: State, compute: Callable[[str], GPUPartitionStatus | None]
    ) -> None:
        self._kube = kube
        self._state = state
        self._compute = compute
        self._changes = Changes()
        self._log = structlog.get_logger().bind(part="status")

    def changed(self, name: str) -> None:
        """Have a partition's status renewed."""
        self._changes.add(name)

    async def run(self) -> None:
        """Write for ever."""
        loop = asyncio.get_running_loop()
        while True:
            names = await self._changes.take()
            began = loop.time()
            for name in names:
                await self._write(name)
            await asyncio.sleep(max(_PERIOD, loop.time() - began))

    async def _write(self, name: str) -> None:
        partition = self._state.partitions.get(name)
        status = self._compute(name)
        if partition is None or status is None:
            return
        patch = merge_diff(partition.status.dump(), status.dump())
        if not patch:
            return
        try:
            body = await self._kube.patch(PARTITIONS, name, {"status": patch}, subresource="status")
        except NotFoundError:
            return
        except KubernetesError as error:
            self._log.warning("status not written", partition=name, error=str(error))
            self.changed(name)
            return
        self._state.apply_partition(body)
