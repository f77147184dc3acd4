"""Writes to the ledger which allocations are being released.

These writes do not wait for a cycle of the partition, because a policy may take longer than kubelet
waits before it signals the programs of a deleted Pod (`partita.pods.termination`).
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import structlog

from partita.claims.ledger_writes import write_ledger
from partita.kube.client import Kube
from partita.kube.errors import KubernetesError
from partita.scheduling.demand import Demand
from partita.scheduling.ledger import ServerChange
from partita.store.state import State

__all__ = ["ReleaseMarks"]


@dataclass
class ReleaseMarks:
    """Writes the marks that `Demand.marks` requests, in one patch per GPU at a time.

    After a write the job is reconciled again, and the plan deletes the Pod.

    Parameters
    ----------
    spawn
        Starts a task.
    """

    kube: Kube
    state: State
    demand: Demand
    spawn: Callable[[Coroutine[Any, Any, None]], object]

    def __post_init__(self) -> None:
        self._marks = self.demand.marks
        self._writing: set[str] = set()
        self._log = structlog.get_logger().bind(part="claims")

    def start(self) -> None:
        """Start the writes of all requested marks."""
        for server in [name for name, marks in self._marks.items() if marks]:
            if server not in self._writing:
                self._writing.add(server)
                self.spawn(self._write(server))

    async def _write(self, server: str) -> None:
        """Write the marks of a GPU until no more are requested."""
        try:
            while marks := dict(self._marks[server]):
                if await self._try(server, ServerChange(mark=marks)):
                    # A mark of the same job was requested before this one was known. The next
                    # reconciliation requests it again if it is still needed.
                    for uid in marks:
                        self._marks[server].pop(uid, None)
                else:
                    await asyncio.sleep(self.kube.times.retry_mark)
        finally:
            self._writing.discard(server)

    async def _try(self, server: str, change: ServerChange) -> bool:
        """Write marks; return whether this is done, or the GPU is gone."""
        try:
            written = await write_ledger(self.kube, self.state, server, change, lambda *_: True)
        except KubernetesError as error:
            self._log.warning("release not marked", server=server, error=str(error))
            return False
        return written or server not in self.state.servers
