"""Writes the partitions' statuses at a limited rate."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from partita.kube.client import PARTITIONS, Kube
from partita.kube.errors import KubernetesError, NotFoundError
from partita.kube.merge_patch import merge_diff
from partita.models import GPUPartitionStatus
from partita.store.state import State

__all__ = ["PartitionStatusWriter"]


@dataclass
class PartitionStatusWriter:
    """The only writer of GPUPartition statuses. It pauses for at least as long as it has written.

    Parameters
    ----------
    compute
        Returns the desired status of a partition; None if the partition is deleted.
    """

    kube: Kube
    state: State
    compute: Callable[[str], GPUPartitionStatus | None]

    def __post_init__(self) -> None:
        self._queue = self.state.queues.partition_statuses

    async def run(self) -> None:
        """Write statuses until cancelled."""
        loop, log = asyncio.get_running_loop(), structlog.get_logger().bind(part="status")
        while True:
            names = sorted(await self._queue.get())
            began = loop.time()
            for name in names:
                try:
                    await self._write(name)
                except NotFoundError:
                    pass  # its deletion will be reported
                except Exception as error:  # a bug that affects one partition
                    bug, said = not isinstance(error, KubernetesError), str(error)
                    log.warning("status not written", partition=name, error=said, exc_info=bug)
                    self._queue.add(name)
            await asyncio.sleep(max(self.kube.times.partition_status, loop.time() - began))

    async def _write(self, name: str) -> None:
        partition = self.state.partitions.get(name)
        status = self.compute(name)
        if partition is None or status is None:
            return
        if patch := merge_diff(partition.status.dump(), status.dump()):
            body = await self.kube.patch(PARTITIONS, name, {"status": patch}, subresource="status")
            self.state.apply_partition(body)
