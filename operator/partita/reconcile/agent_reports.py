"""The agents' reports about a job: its use of its GPUs, and the faults of these GPUs."""

from collections.abc import Iterable
from datetime import datetime

from partita.constants import MPS_MAX_CLIENTS
from partita.informer.views import PodView
from partita.models import GPUServer, SharingMode
from partita.reconcile.fault_policy import GPUFault

__all__ = ["excess_of", "fault_of", "max_clients", "use_of"]


def max_clients(server: GPUServer) -> int:
    """Return the maximum number of MPS clients of a GPU; 0 without MPS."""
    if server.spec.mode is not SharingMode.MPS:
        return 0
    return server.status.max_clients or MPS_MAX_CLIENTS


def excess_of(uid: str, servers: Iterable[GPUServer]) -> str:
    """Return a message if the agent ended an MPS client because a job had too many; else empty."""
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
    """Return a job's peak memory on any of its GPUs, in bytes, and its first use of a GPU.

    Each is None if no agent has reported it. An agent that has not received a new allocation yet
    still reports the previous attempt.
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
    """Return why all programs on a GPU are lost; None if they are not.

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
