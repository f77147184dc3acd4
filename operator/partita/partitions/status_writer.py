"""Writes the partitions' statuses at a limited rate."""

import asyncio
from collections.abc import Callable

import structlog

from partita.kube.client import PARTITIONS, Kube
from partita.kube.errors import KubernetesError, NotFoundError
from partita.kube.merge_patch import merge_diff
from partita.models import GPUPartitionStatus
from partita.store.state import State
from partita.times import Times

__all__ = ["PartitionStatusWriter"]


class PartitionStatusWriter:
    """The only writer of GPUPartition statuses.

    Parameters
    ----------
    compute
        Returns the desired status of a partition; None if the partition is deleted.
    times
        The pause between two writes. If all writes take longer, it is as long as they took.
    """

    def __init__(
        self,
        kube: Kube,
        state: State,
        compute: Callable[[str], GPUPartitionStatus | None],
        times: Times = Times(),
    ) -> None:
        self._times = times
        self._kube = kube
        self._state = state
        self._compute = compute
        self._queue = state.queues.partition_statuses
        self._log = structlog.get_logger().bind(part="status")

    async def run(self) -> None:
        """Write statuses until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            names = sorted(await self._queue.get())
            began = loop.time()
            for name in names:
                await self._write(name)
            await asyncio.sleep(max(self._times.partition_status, loop.time() - began))

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
            return  # its deletion will be reported
        except KubernetesError as error:
            self._log.warning("status not written", partition=name, error=str(error))
            self._queue.add(name)
            return
        self._state.apply_partition(body)
