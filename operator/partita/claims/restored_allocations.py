"""Restores the ledger entries of a claim whose Pod has its allocation.

A ledger loses entries if somebody edits it, or restores GPUServers from a backup. The claim still
says what it got. Only the operator writes that (policy `partita-claim-allocations`), so it is
written to the ledger again if its GPUs still have room. Otherwise the Pod must end: the memory that
it uses belongs to others.

The claim says what it got first. If its application has run out of that much memory since, the
entry had been raised, so it is restored with what the claim asks for now.

Quotas and the limit of services are not applied: as after a limit was lowered, what runs keeps its
memory, and nothing new starts above the limit.
"""

from datetime import datetime
from functools import partial

from partita.claims.ledger_writes import fits, write_ledger
from partita.claims.new_allocations import granted_entry, grown_entry
from partita.kube.client import Kube
from partita.kube.errors import ConflictError
from partita.models import Allocation, GPUPartition, GPUServer
from partita.scheduling.ledger import ServerChange
from partita.store.claim_view import ClaimView
from partita.store.state import State
from partita.store.views import PodView
from partita_policies.types import Job

__all__ = ["restore_entries"]


async def restore_entries(
    kube: Kube,
    state: State,
    claim: ClaimView,
    pod: PodView,
    *,
    asks: Job | None,
    now: datetime,
) -> str:
    """Write the ledger entries that an allocated claim lacks.

    Parameters
    ----------
    pod
        The Pod that uses it.
    asks
        What the claim asks for because its application ran out of memory; None if it never did.
    now
        When it is allocated from now on.

    Returns
    -------
    str
        Why that is impossible; empty if they are written.

    Raises
    ------
    ConflictError
        If the ledger changed meanwhile: plan again.
    KubernetesError
        If the API server is unavailable or refuses the request.
    """
    slices = claim.allocation.slices if claim.allocation else ()
    if not slices:
        return "its allocation does not say how much it got"
    changes: dict[str, tuple[ServerChange, GPUPartition]] = {}
    for slice_ in slices:
        name = slice_.gpu_server
        if name in state.allocated(claim.uid):
            continue
        server = state.servers.get(name)
        partition = state.partitions.get(server.spec.partition) if server else None
        if server is None or partition is None or server.status.uuid != slice_.gpu:
            return f"GPUServer {name} no longer has the GPU {slice_.gpu}"
        entry = granted_entry(claim, slice_, pod, now)
        entry = entry.model_copy(update={"stores_usage": slice_ is slices[0]})
        possible = (
            ServerChange(allocate={claim.uid: each})
            for each in (_raised(entry, asks, server, now), entry)
        )
        change = next((each for each in possible if fits(server, each, partition)), None)
        if change is None:
            return f"GPUServer {name} has no room for it any more"
        changes[name] = change, partition
    for name, (change, partition) in changes.items():
        has_room = partial(fits, partition=partition)
        if not await write_ledger(kube, state, name, change, has_room):
            raise ConflictError(f"restore {claim.key}", 409, "the ledger was written meanwhile")
    return ""


def _raised(entry: Allocation, asks: Job | None, server: GPUServer, now: datetime) -> Allocation:
    """Return an entry as it was raised after the Pod ran out of memory, if it was."""
    if asks is None or asks.alone or asks.memory - asks.context_memory < entry.memory:
        return entry
    raised = grown_entry(entry, asks, server, now)
    same = (raised.memory, raised.memory_limit) == (entry.memory, entry.memory_limit)
    return entry if same else raised
