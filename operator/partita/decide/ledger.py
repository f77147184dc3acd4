"""The ledger: who has allocated how much of which GPU.

It lives in `status.allocations` of the GPUServers, one entry a job, so that a repeated allocation
or release changes nothing. One cycle's changes to one GPU go out as one merge patch with the
GPU's resource version as precondition: two operators can never both allocate the same memory.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from partita.models import Allocation, GPUServer

__all__ = [
    "Held",
    "LedgerChanges",
    "ServerChange",
    "allocations_after",
    "keeps",
    "overcommitted",
    "totals",
]


@dataclass(slots=True)
class ServerChange:
    """What changes on one GPU."""

    release: set[str] = field(default_factory=set)
    """UIDs of jobs that release their allocations."""
    allocate: dict[str, Allocation] = field(default_factory=dict)
    """What jobs allocate, by UID."""

    def patch(self) -> dict[str, Any]:
        """Write it as a merge patch."""
        entries: dict[str, Any] = dict.fromkeys(self.release - self.allocate.keys())
        entries |= {uid: allocation.dump() for uid, allocation in self.allocate.items()}
        return {"status": {"allocations": entries}}


class LedgerChanges:
    """What one cycle changes, by GPUServer."""

    def __init__(self) -> None:
        self.by_server: dict[str, ServerChange] = {}

    def release(self, uid: str, servers: Iterable[str]) -> None:
        """Give back what a job has on these GPUs."""
        for server in servers:
            self.by_server.setdefault(server, ServerChange()).release.add(uid)

    def allocate(self, uid: str, server: str, allocation: Allocation) -> None:
        """Allocate a part of a GPU for a job."""
        self.by_server.setdefault(server, ServerChange()).allocate[uid] = allocation


def allocations_after(server: GPUServer, change: ServerChange) -> dict[str, Allocation]:
    """Return the ledger of a GPU as it is after a change."""
    kept = {
        uid: allocation
        for uid, allocation in server.status.allocations.items()
        if uid not in change.release
    }
    return kept | change.allocate


def overcommitted(
    allocations: Mapping[str, Allocation], *, memory: int, max_jobs: int, max_clients: int
) -> list[str]:
    """Name each bound that a ledger breaks; none on a healthy one.

    Parameters
    ----------
    memory
        Bytes that may be allocated.
    max_jobs, max_clients
        Places and MPS clients of the GPU.
    """
    jobs = allocations.values()
    problems = []
    if (allocated := sum(a.memory for a in jobs)) > memory:
        problems.append(f"{allocated} bytes are allocated of {memory}")
    if (slots := sum(a.slots for a in jobs)) > max_jobs:
        problems.append(f"{slots} places are allocated of {max_jobs}")
    if (clients := sum(a.clients for a in jobs)) > max_clients:
        problems.append(f"{clients} MPS clients are allocated of {max_clients}")
    if len(allocations) > 1 and any(a.alone for a in jobs):
        problems.append("a job that is to be alone is not")
    return problems


@dataclass(slots=True)
class Held:
    """What a namespace has allocated in a partition."""

    memory: int = 0
    jobs: int = 0


def totals(
    servers: Iterable[GPUServer], released: Mapping[str, Collection[str]]
) -> dict[str, Held]:
    """Add up what each namespace has allocated; a job on several GPUs counts as one job.

    Parameters
    ----------
    released
        UIDs of jobs whose allocations are being released, by GPUServer: they do not count.
    """
    result: dict[str, Held] = {}
    seen: set[str] = set()
    for server in servers:
        for uid, allocation in server.status.allocations.items():
            if uid in released.get(server.metadata.name, ()):
                continue
            held = result.setdefault(allocation.namespace, Held())
            held.memory += allocation.memory
            if uid not in seen:
                seen.add(uid)
                held.jobs += 1
    return result


def keeps(uid: str, servers: Iterable[str], released: Mapping[str, Collection[str]]) -> bool:
    """Tell whether a job has something allocated on these GPUs that is not being released."""
    return any(uid not in released.get(server, ()) for server in servers)
