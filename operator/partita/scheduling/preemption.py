"""Which running jobs make room for one of higher priority."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from partita_policies.room import Room
from partita_policies.types import GPU, Booking, Job

__all__ = ["victims_for"]


def victims_for(
    job: Job,
    gpus: Sequence[GPU],
    *,
    spared: Collection[str] = (),
    kept: Collection[str] = (),
) -> tuple[tuple[str, ...], tuple[Booking, ...]] | None:
    """Find the GPUs on which the least must be ended for a job to fit.

    Victims have a lower priority than the job; the lowest go first, and among equals the one
    that started last, because it loses least. Nobody is ended without need.

    Parameters
    ----------
    gpus
        The GPUs that may take jobs, with what is booked on them now.
    spared
        GPUs that are held for other jobs.
    kept
        Jobs that are not to be ended.

    Returns
    -------
    tuple or None
        The GPUs and the victims on them; None if ending jobs of lower priority is not enough.
    """
    nodes: dict[str, list[_Option]] = {}
    for gpu in gpus:
        victims = None if gpu.id in spared else _victims_on(job, gpu, kept)
        if victims is not None:
            nodes.setdefault(gpu.node, []).append(_Option(gpu.id, victims))
    choices = [
        sorted(options, key=lambda option: option.cost)[: job.gpus]
        for options in nodes.values()
        if len(options) >= job.gpus
    ]
    if not choices:
        return None
    best = min(choices, key=lambda options: [max(o.cost[0] for o in options), *_costs(options)])
    victims_by_id = {victim.job: victim for option in best for victim in option.victims}
    return tuple(sorted(option.gpu for option in best)), tuple(victims_by_id.values())


@dataclass(frozen=True, slots=True)
class _Option:
    """One GPU, and who must go for the job to fit there."""

    gpu: str
    victims: tuple[Booking, ...]

    @property
    def cost(self) -> tuple[int, int, str]:
        highest = max((v.priority for v in self.victims), default=-(1 << 31))
        return highest, len(self.victims), self.gpu


def _costs(options: Sequence[_Option]) -> tuple[int, str]:
    return sum(len(option.victims) for option in options), options[0].gpu


def _victims_on(job: Job, gpu: GPU, kept: Collection[str]) -> tuple[Booking, ...] | None:
    """Return the fewest jobs on a GPU to end; None if that would not make it fit."""
    lower = [b for b in gpu.bookings if b.priority < job.priority and b.job not in kept]
    lower.sort(key=lambda b: (b.priority, b.elapsed, b.job))
    victims: list[Booking] = []
    while not _fits(job, gpu, victims):
        if len(victims) == len(lower):
            return None
        victims.append(lower[len(victims)])
    for booking in reversed(victims[:-1]):
        others = [victim for victim in victims if victim is not booking]
        if _fits(job, gpu, others):
            victims = others
    return tuple(victims)


def _fits(job: Job, gpu: GPU, without: Sequence[Booking]) -> bool:
    gone = {booking.job for booking in without}
    left = replace(gpu, bookings=tuple(b for b in gpu.bookings if b.job not in gone))
    return Room([left]).why_not(job, gpu.id) is None
