"""The agents' reports about a claim: its use of its GPUs, and the faults of these GPUs."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from partita.constants import MPS_MAX_CLIENTS
from partita.models import GPUServer, SharingMode
from partita.models.sharing import Enforcement
from partita.pods.allocation import CONTEXT_MEMORY
from partita.scheduling.fault_policy import CLIENT_KILLED, HARDWARE, GPUFault
from partita.scheduling.reasons import gib
from partita.store.views import PodView

__all__ = [
    "AgentReport",
    "context_memory",
    "contexts_of",
    "fault_of",
    "max_clients",
    "report_of",
    "wrong_limit_of",
]

_CANARY: Final = 1
"""MPS clients that the agent needs for its canary."""


@dataclass(frozen=True, slots=True)
class AgentReport:
    """What the agents of a claim's GPUs tell of its programs."""

    peak: int | None = None
    """Most GPU memory that they used on any of the GPUs, in bytes; None if it is not known."""
    first_use: datetime | None = None
    """When they first used a GPU, by the node's clock; None if it is not known."""
    contexts: int = 0
    """Bytes that they may use for CUDA contexts in addition to their memory; 0 unless the driver
    limits it."""
    above_processes: str = ""
    """Message if an MPS client was ended because there were too many; empty otherwise."""
    killed_beside: datetime | None = None
    """When a client of others on the same GPU was killed last, by the node's clock."""
    hardware: str = ""
    """Why the hardware of a GPU has just failed; empty if it has not."""


def report_of(uid: str, servers: Collection[GPUServer]) -> AgentReport:
    """Return what the agents of some GPUServers tell of a claim."""
    uses = [use for server in servers if (use := server.status.uses.get(uid)) is not None]
    return AgentReport(
        peak=max((use.peak_memory for use in uses), default=None),
        first_use=min((use.first_use for use in uses if use.first_use), default=None),
        contexts=contexts_of(uid, servers),
        above_processes=_excess(uid, servers),
        killed_beside=_kill_beside(uid, servers),
        hardware=next(filter(None, map(_hardware, servers)), ""),
    )


def max_clients(server: GPUServer) -> int:
    """Return the maximum number of MPS clients of a GPU's jobs; 0 without MPS.

    One client of the driver's limit is reserved for the agent's canary, which must be able to
    connect while the jobs use all of theirs.
    """
    if server.spec.mode is not SharingMode.MPS:
        return 0
    return (server.status.max_clients or MPS_MAX_CLIENTS) - _CANARY


def context_memory(server: GPUServer) -> int:
    """Return the bytes that each process of a job gets for its CUDA context on a GPU.

    0 if the driver does not limit the jobs: then their limits do not include contexts.
    """
    return CONTEXT_MEMORY if server.status.enforcement == "Driver" else 0


def contexts_of(uid: str, servers: Iterable[GPUServer]) -> int:
    """Return the bytes that a job may use for CUDA contexts on a GPU in addition to its memory."""
    found = ((server, server.status.allocations.get(uid)) for server in servers)
    return max((context_memory(s) * a.clients for s, a in found if a is not None), default=0)


def wrong_limit_of(uid: str, server: GPUServer) -> str:
    """Return a message if a job has not got the limit of the driver that its GPU requires.

    Empty if the limit is right or was not read back.
    """
    used, allocation = server.status.uses.get(uid), server.status.allocations.get(uid)
    wrong = used.limit_mismatch if used is not None else None
    required = server.spec.enforcement is Enforcement.DRIVER
    if wrong is None or allocation is None or not required:
        return ""
    has = "no limit" if wrong.found is None else f"the limit {gib(wrong.found)}"
    return (
        f"its container has {has} of GPU memory instead of {gib(wrong.expected)}, and "
        "sharing.enforcement is Driver: see the condition DriverLimits of "
        f"{server.metadata.name}"
    )


def _excess(uid: str, servers: Iterable[GPUServer]) -> str:
    for server in servers:
        used, allocation = server.status.uses.get(uid), server.status.allocations.get(uid)
        if used is not None and used.excess_processes and allocation is not None:
            return (
                f"it had {used.excess_processes} MPS clients with {allocation.clients} allocated "
                "(spec.processes), so the newest was ended"
            )
    return ""


def _kill_beside(uid: str, servers: Iterable[GPUServer]) -> datetime | None:
    found = [server.status.mps.killed_client for server in servers if server.status.mps is not None]
    return max((k.time for k in found if k is not None and k.claim != uid), default=None)


def _hardware(server: GPUServer) -> str:
    """Return why the GPU's hardware has just failed. It may take new jobs nevertheless."""
    ready = server.status.condition("Ready")
    failed = ready is not None and ready.reason in HARDWARE
    return f"{ready.reason}: {ready.message}" if failed and ready else ""


def fault_of(server: GPUServer, pod: PodView | None) -> GPUFault | None:
    """Return why all programs on a GPU are lost; None if they are not.

    Parameters
    ----------
    pod
        Its server Pod.
    """
    fault = server.status.condition("Faulted")
    if fault is not None and fault.status == "True":
        killed = server.status.mps.killed_client if server.status.mps is not None else None
        by_kill = killed is not None and fault.reason == CLIENT_KILLED
        cause = killed.claim if by_kill and killed else ""
        return GPUFault(fault.reason, fault.message, cause, _hardware(server))
    if pod is None or pod.deleting or pod.outcome.finished:
        return GPUFault("", "its server Pod is gone")
    return None
