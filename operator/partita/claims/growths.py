"""Writes the larger memory of claims to the ledger, and tells it to their Pods."""

from collections.abc import Iterable
from datetime import datetime

import structlog

from partita.claims.new_allocations import grown_entry
from partita.kube.events import Events, EventSubject
from partita.models import Allocation
from partita.scheduling.allocated_claim import Growth
from partita.scheduling.reasons import gib
from partita.store.state import State

__all__ = ["raised_entries", "report_raised"]

Raised = tuple[Growth, Allocation, Allocation]
"""What a claim gets, and its entry before and after."""


def raised_entries(growths: Iterable[Growth], state: State, since: datetime) -> list[Raised]:
    """Return the entries of claims that get more memory, unless they were raised meanwhile."""
    raised = []
    for growth in growths:
        name = growth.gpu_server
        entry = state.allocated(growth.job.id).get(name)
        if entry is not None and entry.grown_since == growth.grown_since:
            larger = grown_entry(entry, growth.job, state.servers[name], since)
            raised.append((growth, entry, larger))
    return raised


def report_raised(raised: Iterable[Raised], state: State, events: Events) -> None:
    """Write the Events about those that are in the ledger now."""
    log = structlog.get_logger().bind(part="claims")
    for growth, before, _ in raised:
        now = state.allocated(growth.job.id).get(growth.gpu_server)
        if now is None or now.grown_since == before.grown_since:
            continue
        has, had = (gib(entry.ceiling) for entry in (now, before))
        said = f"it ran out of GPU memory with {had}: its next container gets {has}"
        log.info("memory raised", claim=before.name, gpu=growth.gpu_server, memory=has)
        subject = EventSubject.pod(before.namespace, before.pod, before.pod_uid)
        events.inform(subject, "MemoryRaised", said)
