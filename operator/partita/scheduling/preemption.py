"""Which running jobs make room for one of higher priority."""

from collections.abc import Collection, Sequence

from partita_policies.room import Room
from partita_policies.types import GPU, Booking, Job

__all__ = ["victims_for"]


def victims_for(
    job: Job, gpus: Sequence[GPU], *, spared: Collection[str] = ()
) -> tuple[tuple[str, ...], tuple[Booking, ...]] | None:
    """Find the GPUs on which the least must be ended for a job to fit.

    Victims have a lower priority than the job; the lowest go first, and among equals the one
    that started last, because it loses least.

    Parameters
    ----------
    gpus
        The GPUs that may take jobs, with what is booked on them now.
    spared
        GPUs that are held for other jobs.

    Returns
    -------
    tuple or None
        The GPUs and the victims on them; None if ending jobs of lower priority is not enough.
    """
    nodes: dict[str, list[tuple[tuple[int, int], GPU, tuple[Booking, ...]]]] = {}
    for gpu in gpus:
        if gpu.id in spared:
            continue
        victims = _victims_on(job, gpu)
        if victims is not None:
            cost = (max((v.priority for v in victims), default=-(1 << 31)), len(victims))
            nodes.setdefault(gpu.node, []).append((cost, gpu, victims))
    best = None
    for options in nodes.values():
        chosen = sorted(options, key=lambda o: (o[0], o[1].id))[: job.gpus]
        if len(chosen) < job.gpus:
            continue
        total = (max(o[0][0] for o in chosen), sum(o[0][1] for o in chosen), chosen[0][1].id)
        if best is None or total < best[0]:
            best = (total, chosen)
    if best is None:
        return None
    all_victims = {v.job: v for _, _, on_gpu in best[1] for v in on_gpu}
    return tuple(sorted(o[1].id for o in best[1])), tuple(all_victims.values())


def _victims_on(job: Job, gpu: GPU) -> tuple[Booking, ...] | None:
    """Return the fewest jobs on a GPU to end; None if that would not make it fit."""
    one = Job(
        id=job.id,
        name=job.name,
        namespace=job.namespace,
        memory=job.memory,
        slots=job.slots,
        clients=job.clients,
        alone=job.alone,
    )
    room = Room([gpu])
    lower = [b for b in gpu.bookings if b.priority < job.priority]
    victims: list[Booking] = []
    for booking in sorted(lower, key=lambda b: (b.priority, b.elapsed, b.job)):
        if room.why_not(one, gpu.id) is None:
            break
        room.give_back(booking.job)
        victims.append(booking)
    return tuple(victims) if room.why_not(one, gpu.id) is None else None
