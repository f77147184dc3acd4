"""The guard for the present state of a partition."""

from collections.abc import Collection, Mapping

from partita.models import GPUPartition, GPUServer
from partita.scheduling.guard import Guard
from partita.scheduling.ledger import totals
from partita.scheduling.node_resources import left_on
from partita.scheduling.partition_state import Reservation
from partita.scheduling.preemption import without_jobs
from partita.scheduling.snapshot import gpus_of
from partita.store.state import State
from partita_policies.types import GPU, Job

__all__ = ["guard_of", "keeps", "still_waits"]


def guard_of(
    partition: GPUPartition,
    state: State,
    *,
    waiting: Mapping[str, Job],
    released: Mapping[str, set[str]],
    known: dict[str, tuple[GPUServer, GPU]],
    reserved: Mapping[str, Reservation],
) -> Guard:
    """Return a guard for the present state of a partition.

    Parameters
    ----------
    waiting
        The jobs that wait as far as they are reconciled, by UID.
    released
        UIDs of jobs whose allocations count as free, by GPUServer.
    known
        As in `gpus_of`.
    reserved
        GPUs of jobs whose Pods are being created, by UID. They count as taken.
    """
    gpus = gpus_of(partition, state, known)
    guard = Guard(
        tuple(without_jobs(gpu, released.get(gpu.id, ())) for gpu in gpus),
        waiting,
        waits=lambda uid: still_waits(uid, state, released),
        quotas={q.namespace: q for q in partition.spec.quotas},
        services_percent=partition.spec.services.percent,
        held=totals(state.servers_of(partition.metadata.name), released),
        left=left_on({gpu.node for gpu in gpus}, state, released),
    )
    for uid, (job, names, *_) in reserved.items():
        if uid not in waiting and guard.capacity.why_not_together(job, names) is None:
            guard.accept(job, names)
    return guard


def still_waits(uid: str, state: State, released: Mapping[str, Collection[str]]) -> bool:
    """Return whether a job or claim still waits for a GPU, by its newest version.

    It does not if its allocation was found only now, because the response was lost.
    """
    user = state.user(uid)
    return user is not None and user.may_be_placed and not keeps(uid, state, released)


def keeps(uid: str, state: State, released: Mapping[str, Collection[str]]) -> bool:
    """Return whether a job or claim has allocations that are not being released.

    Parameters
    ----------
    released
        UIDs of claims whose allocations are being released, by GPUServer.
    """
    # Each cycle asks of all jobs that wait, and most have none.
    return state.is_allocated(uid) and any(
        holder not in released.get(server, ()) for server, holder in state.places(uid)
    )
