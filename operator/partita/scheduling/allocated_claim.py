"""A claim that has a slice: whether its memory is to be raised, and what its status says.

The memory of a claim is raised in place: the operator changes the ledger, the agent follows it, and
the next container of the Pod that starts has the new limits. So a service that ran out of memory
gets more without a new Pod. The allocation in the claim itself never changes, because the API
server allows no change of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from partita.models import Allocation, GPUServer
from partita.models.quantities import format_time
from partita.scheduling.agent_reports import report_of
from partita.scheduling.reasons import Reason, WaitingReason, gib
from partita.store.workload_pod import WorkloadPod
from partita.times import Times
from partita_policies.types import Job

__all__ = ["Growth", "allocated_why", "growth_of", "refused_memory"]


@dataclass(frozen=True, slots=True)
class Growth:
    """More memory for a claim whose program ran out of it."""

    gpu_server: str
    """The GPUServer on which it is allocated."""
    job: Job
    """What the claim is to have."""
    grown_since: datetime | None = None
    """When its memory was raised before; None if it was not."""
    movable: bool = False
    """Whether its Pod may be evicted if its GPU has no room: none of its containers runs, and its
    controller replaces it."""


def refused_memory(uid: str, pod: WorkloadPod, server: GPUServer, times: Times = Times()) -> int:
    """Return the bytes with which a claim's Pod ran out of a GPU's memory; 0 if it has not.

    Only a container that has started with the present limits counts.

    Parameters
    ----------
    server
        The GPUServer on which it is allocated.
    """
    entry, failure = server.status.allocations[uid], pod.failure
    if failure is None or entry.releasing_since is not None:
        return 0
    effective = timedelta(seconds=times.limits_effective)
    if entry.grown_since is not None and failure.started_at < entry.grown_since + effective:
        return 0
    memory = entry.ceiling
    report = report_of(uid, [server])
    return memory if failure.ran_out(memory + report.contexts, report.peak) else 0


def growth_of(
    entry: Allocation, name: str, asks: Job | WaitingReason, pod: WorkloadPod
) -> Growth | None:
    """Return the larger slice of a claim that ran out of memory; None if it cannot have more.

    Parameters
    ----------
    name
        The GPUServer on which it is allocated.
    asks
        What the claim asks for now that the refused memory is known.
    """
    if isinstance(asks, WaitingReason) or entry.alone or asks.alone:
        return None
    memory = asks.memory - asks.context_memory
    limit = max(memory, asks.memory_limit - asks.context_memory)
    if memory <= entry.memory and limit <= (entry.ceiling):
        return None
    running = pod.failure is not None and pod.failure.running
    movable = bool(pod.controller) and not running
    return Growth(name, asks, entry.grown_since, movable=movable)


def allocated_why(
    servers: Sequence[GPUServer],
    entry: Allocation,
    *,
    refused: int = 0,
    growth: Growth | None = None,
    not_grown: str = "",
    idle_since: datetime | None = None,
) -> WaitingReason:
    """Return what the status of an allocated claim says.

    Parameters
    ----------
    servers
        The GPUServers on which it is allocated.
    entry
        Its entry in the first one's ledger.
    refused
        Bytes with which its Pod has run out of memory.
    growth
        The larger slice that it is to get.
    not_grown
        Why it has not got it yet.
    idle_since
        Since when its Pod is idle; None if it is not.
    """
    where = ", ".join(server.metadata.name for server in servers)
    has = f"{gib(entry.memory)} on {where} (node {servers[0].status.node})"
    if refused and growth is not None:
        more = gib(growth.job.memory - growth.job.context_memory)
        waits = f" as soon as there is room: {not_grown}" if not_grown else ""
        return WaitingReason(
            Reason.OUT_OF_MEMORY, f"ran out of GPU memory with {gib(refused)}, gets {more}{waits}"
        )
    if refused:
        return WaitingReason(
            Reason.OUT_OF_MEMORY,
            f"ran out of GPU memory with {gib(refused)}, and gets no more: the largest GPU has no "
            "more, or outOfMemory.limit of the partition is reached. Ask for more memory, or use "
            "less",
        )
    if idle_since is not None:
        since = format_time(idle_since)
        return WaitingReason(Reason.IDLE, f"has run no kernel since {since}, and has {has}")
    grown = ", raised after it ran out of GPU memory" if entry.grown_since else ""
    return WaitingReason(Reason.ALLOCATED, f"{has}{grown}")
