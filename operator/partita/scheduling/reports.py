"""What the agents report that concerns a job: its use of its GPUs, and their faults."""

from collections.abc import Iterable
from datetime import datetime

from partita.models import GPUServer
from partita.scheduling.fault_policy import GPUFault
from partita.scheduling.views import PodView

__all__ = ["fault_of", "use_of"]


def use_of(uid: str, servers: Iterable[GPUServer]) -> tuple[int | None, datetime | None]:
    """Return a job's peak on any of its GPUs, in bytes, and when it used one of them first.

    Either is None where no agent has told. An agent that does not know of a new booking yet still
    reports the attempt before.
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
