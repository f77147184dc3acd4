"""What the agents report that concerns a job: its use of its GPUs, and their faults."""

from collections.abc import Iterable
from datetime import datetime

from partita.constants import MPS_MAX_CLIENTS
from partita.informer.views import PodView
from partita.models import GPUServer, SharingMode
from partita.reconcile.fault_policy import GPUFault

__all__ = ["excess_of", "fault_of", "max_clients", "use_of"]


def max_clients(server: GPUServer) -> int:
    """Return how many MPS clients a GPU serves; 0 without MPS."""
    if server.spec.mode is not SharingMode.MPS:
        return 0
    return server.status.max_clients or MPS_MAX_CLIENTS


def excess_of(uid: str, servers: Iterable[GPUServer]) -> str:
    """Say that the agent ended a client of a job that had too many; empty where it did not."""
    for server in servers:
        usage, allocation = server.status.usage, server.status.allocations.get(uid)
        used = usage.jobs.get(uid) if usage is not None else None
        if used is not None and used.excess_processes and allocation is not None:
            return (
                f"it had {used.excess_processes} MPS clients with {allocation.clients} allocated "
                "(spec.processes), so the newest was ended"
            )
    return ""


def use_of(uid: str, servers: Iterable[GPUServer]) -> tuple[int | None, datetime | None]:
    """Return a job's peak on any of its GPUs, in bytes, and when it used one of them first.

    Either is None where no agent has reported it. An agent that does not know of a new allocation
    yet still reports the attempt before.
    """
    uses = [
        usage.jobs[uid]
        for server in servers
        if (usage := server.status.usage) is not None and uid in usage.jobs
    ]
    peak = max((use.peak_memory for use in uses), default=None)
    first_use = min((use.first_use for use in uses if use.first_use), default=None)
    return peak, first_use


def fault_of(server: GPUServer, pod: PodView | None) -> GPUFault | None:
    """Say why every program on a GPU is lost; None when none is.

    Parameters
    ----------
    pod
        Its server Pod.
    """
    fault = server.status.condition("Faulted")
    if fault is not None and fault.status == "True":
        return GPUFault(fault.reason, fault.message)
    if pod is None or pod.deleting or pod.outcome.finished:
        return GPUFault("", "its server Pod is gone")
    return None
