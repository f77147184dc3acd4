"""The inputs of a claim's plan, from the state."""

from collections.abc import Sequence
from datetime import datetime

from partita.claims.claim_lifecycle import ClaimContext, Eviction
from partita.claims.claim_record import ClaimRecord
from partita.models import GPUServer, SharingMode
from partita.scheduling.agent_reports import fault_of
from partita.scheduling.gpu_state import drain_deadline, takes_pods
from partita.store.state import State
from partita.store.views import PodView

__all__ = ["context_of"]


def context_of(uid: str, record: ClaimRecord, state: State, now: datetime) -> ClaimContext:
    """Return the inputs of a claim's plan.

    Parameters
    ----------
    record
        What is known of the claim besides the state.
    """
    allocated = state.allocated(uid)
    servers = [state.servers[name] for name in allocated]
    entry = next(iter(allocated.values()), None)
    unknown = bool(state.unknown_of(record.partition))
    return ClaimContext(
        pods=state.pods_of(uid),
        allocated=allocated,
        was_allocated=entry is not None and record.allocated_since == entry.since,
        may_start=takes_pods(allocated, state),
        ending=_ending(servers, state, now) or record.ending,
        unaccounted=None if allocated or unknown else _unaccounted(uid, state),
        unknown=unknown,
        uses_mps=all(s.spec.mode is SharingMode.MPS for s in servers),
        times=record.times,
    )


def _unaccounted(uid: str, state: State) -> PodView | None:
    """Return the claim's Pod if it has started and the ledger has no entry for it."""
    pods = (p for p in state.pods_of(uid) if p.alive and p.node and p.startup is None)
    return next((pod for pod in pods if not _has_entry(pod, state)), None)


def _has_entry(pod: PodView, state: State) -> bool:
    """Return whether a Pod is in the ledger, perhaps for a claim that was deleted."""
    names = (name for claim in state.allocated_for(pod.uid) for name in state.allocated(claim))
    return any(state.servers[name].status.node == pod.node for name in names)


def _ending(servers: Sequence[GPUServer], state: State, now: datetime) -> Eviction | None:
    """Return why the claim's Pod must end, from the state of its GPU."""
    for server in servers:
        name = server.metadata.name
        fault = fault_of(server, state.server_pod(name))
        if fault is not None:
            return Eviction("GPUFault", f"{name} is lost: {fault.message or fault.reason}")
        deadline = drain_deadline(name, state)
        if deadline is not None and deadline <= now:
            return Eviction("Drained", f"{name} is drained, and drainTimeout is over")
    return None
