"""Raises the memory of allocated claims whose programs ran out of it.

This comes before the queue, because these Pods run already. It is subject to the same rules as a
placement: the free memory of the GPU, the quota of the namespace, and the limit of all services.
"""

from collections.abc import Collection, Mapping

from partita.scheduling.allocated_claim import Growth
from partita.scheduling.cycle_result import CycleResult
from partita.scheduling.guard import Guard
from partita.scheduling.reasons import Reason
from partita.scheduling.reservations import fit_among
from partita.store.state import State
from partita_policies.types import GPU

__all__ = ["due_growths", "serve_growths"]


def due_growths(growths: Mapping[str, Growth], state: State) -> dict[str, Growth]:
    """Return the growths of claims whose memory was not raised since they were planned."""
    return {
        uid: growth
        for uid, growth in growths.items()
        if (entry := state.allocated(uid).get(growth.gpu_server)) is not None
        and entry.grown_since == growth.grown_since
    }


def serve_growths(
    growths: Mapping[str, Growth],
    guard: Guard,
    free: Collection[GPU],
    result: CycleResult,
    *,
    kept: Collection[str],
) -> None:
    """Raise what fits on its GPU now; find out what can only be raised elsewhere.

    Parameters
    ----------
    growths
        What allocated claims need, by UID.
    free
        GPUs that are not held for waiting jobs.
    result
        The result of the cycle, to which it is added.
    kept
        UIDs of claims whose Pods must not be evicted.
    """
    names = {gpu.id for gpu in free}
    order = sorted(growths.items(), key=lambda each: (-each[1].job.priority, each[0]))
    for uid, growth in order:
        gpu, job = growth.gpu_server, growth.job
        if gpu not in guard.capacity or uid not in guard.capacity[gpu].holders:
            continue  # the GPU takes no jobs now, or the claim is being released
        why = guard.not_grown(job, gpu)
        if why is None and gpu in names:
            guard.grow(job, gpu)
            result.grown.append(growth)
            continue
        result.not_grown[uid] = why.message if why else f"{gpu} is held for jobs that waited longer"
        lacks_room = why is None or why.reason is Reason.INSUFFICIENT_MEMORY
        elsewhere = [other for other in free if other.id != gpu]
        if (
            growth.movable
            and lacks_room
            and uid not in kept
            and fit_among(job, guard.capacity, elsewhere) is not None
        ):
            result.moves.append(growth)
