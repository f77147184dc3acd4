"""History of the last hours: allocated memory, used memory, and the number of waiting jobs."""

from collections import deque
from datetime import datetime

from partita.console.page_state import PageState
from partita.informer.state import State
from partita.models import Phase

__all__ = ["PERIOD", "History", "Point"]

PERIOD = 15
"""Seconds between two samples."""
HOURS = 6
_SAMPLES = HOURS * 3600 // PERIOD

Point = tuple[int, int, int | None, int, int]
"""Unix time; allocated bytes; used bytes, None if unknown; waiting jobs; allocatable bytes."""


class History:
    """The samples of each partition. Samples from before the start are computed from the jobs."""

    def __init__(self) -> None:
        self._rings: dict[str, deque[Point]] = {}

    def recall(self, state: State, page: PageState, now: datetime) -> None:
        """Compute the samples of the hours before now from the statuses of the jobs.

        Deleted jobs and all workloads are missing, so the values may be too low. The used memory is
        unknown.
        """
        end = int(now.timestamp()) // PERIOD * PERIOD
        start = end - HOURS * 3600
        for entity in page.values():
            if entity["kind"] != "partition" or not entity["exists"]:
                continue
            allocated, waiting = [0] * (_SAMPLES + 1), [0] * (_SAMPLES + 1)
            for job in state.jobs_of(entity["name"]):
                ends = False
                for attempt in job.status.attempts:
                    ends = attempt.end_time is None
                    amount = attempt.memory * max(1, len(attempt.servers))
                    _add(allocated, amount, start, attempt.booked_time, attempt.end_time)
                    if attempt.queued_time is not None:
                        _add(waiting, 1, start, attempt.queued_time, attempt.booked_time)
                if not ends and job.status.phase in {None, Phase.QUEUED}:
                    last = job.status.attempts[-1].end_time if job.status.attempts else None
                    _add(waiting, 1, start, last or job.metadata.creation_timestamp, None)
            points = zip(_summed(allocated), _summed(waiting), strict=True)
            ring = [
                (start + place * PERIOD, memory, None, jobs, entity["allocatable"])
                for place, (memory, jobs) in enumerate(points)
            ]
            busy = next((n for n, point in enumerate(ring) if point[1] or point[3]), len(ring))
            self._rings[entity["name"]] = deque(ring[busy:-1], maxlen=_SAMPLES)

    def sample(self, page: PageState, now: datetime) -> dict[str, list[Point]]:
        """Add and return the samples of this moment."""
        partitions = [e for e in page.values() if e["kind"] == "partition" and e["exists"]]
        added: dict[str, list[Point]] = {}
        for seen in partitions:
            point = (
                int(now.timestamp()),
                seen["allocated"],
                seen["used"],
                seen["waiting"],
                seen["allocatable"],
            )
            self._rings.setdefault(seen["name"], deque(maxlen=_SAMPLES)).append(point)
            added[seen["name"]] = [point]
        for name in self._rings.keys() - added.keys():
            del self._rings[name]
        return added

    def all(self) -> dict[str, list[Point]]:
        """Return all samples, by partition."""
        return {name: list(ring) for name, ring in self._rings.items()}


def _add(
    steps: list[int], amount: int, start: int, since: datetime | None, until: datetime | None
) -> None:
    """Add an amount at the step of `since` and subtract it at the step of `until`."""
    if since is None:
        return
    last = len(steps) - 1
    first = _place(since, start)
    fall = last if until is None else _place(until, start)
    if first < fall and fall > 0:
        steps[max(0, first)] += amount
        if until is not None and fall <= last:
            steps[fall] -= amount


def _place(time: datetime, start: int) -> int:
    return (int(time.timestamp()) - start) // PERIOD


def _summed(steps: list[int]) -> list[int]:
    total, sums = 0, []
    for step in steps:
        total += step
        sums.append(total)
    return sums
