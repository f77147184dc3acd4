"""Writes the larger memory of claims to the ledger, and tells it to their Pods."""

from datetime import datetime

import structlog

from partita.claims.new_allocations import grown_entry
from partita.kube.events import Events, EventSubject
from partita.models import Allocation
from partita.scheduling.allocated_claim import Growth
from partita.scheduling.cycle_result import CycleResult
from partita.scheduling.ledger import LedgerChanges
from partita.scheduling.reasons import gib
from partita.store.state import State

__all__ = ["Growths"]

Raised = tuple[Growth, Allocation]
"""What a claim gets, and its entry before."""


class Growths:
    """Raises the memory of allocated claims."""

    def __init__(self, state: State, events: Events) -> None:
        self._state = state
        self._events = events
        self._log = structlog.get_logger().bind(part="claims")

    def add(self, result: CycleResult, changes: LedgerChanges, since: datetime) -> list[Raised]:
        """Add the claims that get more memory to the changes of a cycle; return them."""
        raised = []
        for growth in result.grown:
            uid, name = growth.job.id, growth.gpu_server
            entry = self._state.allocated(uid).get(name)
            if entry is not None and entry.grown_since == growth.grown_since:
                larger = grown_entry(entry, growth.job, self._state.servers[name], since)
                changes.grow(uid, name, larger)
                raised.append((growth, entry))
        return raised

    def report(self, raised: list[Raised]) -> None:
        """Write the Events about those that are in the ledger now."""
        for growth, before in raised:
            now = self._state.allocated(growth.job.id).get(growth.gpu_server)
            if now is None or now.grown_since == before.grown_since:
                continue
            has, had = (gib(entry.memory_limit or entry.memory) for entry in (now, before))
            said = f"it ran out of GPU memory with {had}: its next container gets {has}"
            self._log.info("memory raised", claim=before.name, gpu=growth.gpu_server, memory=has)
            subject = EventSubject.pod(before.namespace, before.pod, before.pod_uid)
            self._events.inform(subject, "MemoryRaised", said)
