"""The ledger: the allocations of claims on GPUs.

It is stored in `status.allocations` of the GPUServers, with one entry per claim, so that a repeated
allocation or release changes nothing. The changes of one cycle to one GPU are written as one merge
patch with the GPUServer's resource version as precondition. So two operators can never allocate the
same memory.
"""

from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from partita.models import Allocation, GPUServer
from partita_policies.amounts import GPUAmounts

__all__ = [
    "Held",
    "ServerChange",
    "allocations_after",
    "held_in",
    "is_same",
    "overcommitted",
    "totals",
]

_MARKED = ("releasing_since", "release_deadline", "not_evicted")
_GROWN = ("memory", "memory_limit", "thread_percent", "grown_since")


@dataclass(slots=True)
class ServerChange:
    """Changes to the allocations of one GPU."""

    release: set[str] = field(default_factory=set)
    """UIDs of claims whose allocations are released."""
    allocate: dict[str, Allocation] = field(default_factory=dict)
    """New allocations of claims, by UID."""
    mark: dict[str, Allocation] = field(default_factory=dict)
    """Allocations that are being released, with the times of their release or why their Pod could
    not be evicted, by UID. They keep their memory."""
    grow: dict[str, Allocation] = field(default_factory=dict)
    """Allocations with more memory, by UID."""

    def patch(self, present: Container[str]) -> dict[str, Any]:
        """Return the changes as a merge patch.

        Of a changed allocation it has only the changed fields, because another write of the
        operator may change the others at the same time. Of a new one it has only the fields that
        are not at their default, because the API server checks each field in each write.

        Parameters
        ----------
        present
            UIDs of the claims that have allocations. A new allocation in place of one of these
            removes all its fields.
        """
        entries: dict[str, Any] = dict.fromkeys(self.release - self.allocate.keys())
        entries |= {uid: _fields(a, _MARKED) for uid, a in self.mark.items()}
        entries |= {uid: _fields(a, _GROWN) for uid, a in self.grow.items()}
        for uid, allocation in self.allocate.items():
            entry = allocation.dump_given()
            entries[uid] = {**Allocation.unset(), **entry} if uid in present else entry
        return {"status": {"allocations": entries}}

    def changed(self, uid: str, allocation: Allocation) -> Allocation:
        """Return an allocation after this change, without a release."""
        for changed, fields in ((self.mark.get(uid), _MARKED), (self.grow.get(uid), _GROWN)):
            if changed is not None:
                update = {name: getattr(changed, name) for name in fields}
                allocation = allocation.model_copy(update=update)
        return allocation


def _fields(allocation: Allocation, names: Collection[str]) -> dict[str, Any]:
    return allocation.model_dump(by_alias=True, mode="json", include=set(names))


def allocations_after(server: GPUServer, change: ServerChange) -> dict[str, Allocation]:
    """Return the allocations of a GPU after a change."""
    kept = {
        uid: change.changed(uid, allocation)
        for uid, allocation in server.status.allocations.items()
        if uid not in change.release
    }
    return kept | change.allocate


def is_same(one: Allocation | None, other: Allocation | None) -> bool:
    """Return whether two versions of an entry are the same allocation, marked or not."""
    return (one is None and other is None) or (
        one is not None
        and other is not None
        and (one.pod_uid, one.since) == (other.pod_uid, other.since)
    )


def overcommitted(
    allocations: Mapping[str, Allocation],
    *,
    memory: int,
    max_jobs: int,
    max_clients: int,
    context_memory: int = 0,
) -> bool:
    """Return whether a GPU's allocations exceed a limit, or one that is to be alone is not.

    Parameters
    ----------
    memory
        Allocatable bytes.
    max_jobs, max_clients
        Maximum number of places and MPS clients of the GPU.
    context_memory
        Bytes that each MPS client takes in addition to the memory of its job.
    """
    jobs = allocations.values()
    return (
        sum(a.memory + a.clients * context_memory for a in jobs) > memory
        or sum(a.slots for a in jobs) > max_jobs
        or sum(a.clients for a in jobs) > max_clients
        or (len(allocations) > 1 and any(a.alone for a in jobs))
    )


class Held(NamedTuple):
    """Allocations of a namespace in a partition."""

    amounts: GPUAmounts = GPUAmounts()
    jobs: int = 0


def held_in(allocation: Allocation) -> GPUAmounts:
    """Return what an entry of the ledger holds of its GPU."""
    return GPUAmounts(allocation.memory, allocation.slots, allocation.clients)


def totals(
    servers: Iterable[GPUServer], released: Mapping[str, Collection[str]]
) -> dict[str, Held]:
    """Sum the allocations of each namespace; a claim on several GPUs counts as one job.

    Parameters
    ----------
    released
        UIDs of claims whose allocations are being released, by GPUServer. They do not count.
    """
    result: dict[str, Held] = {}
    seen: set[str] = set()
    for server in servers:
        for uid, allocation in server.status.allocations.items():
            if uid in released.get(server.metadata.name, ()):
                continue
            amounts, jobs = result.get(allocation.namespace, Held())
            more = amounts.plus(held_in(allocation))
            result[allocation.namespace] = Held(more, jobs + (uid not in seen))
            seen.add(uid)
    return result
