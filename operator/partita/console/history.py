"""History of the last hours: the memory and the queue of each partition, the use of each slice."""

from array import array
from collections import defaultdict
from collections.abc import Container
from datetime import datetime
from functools import partial
from itertools import accumulate, dropwhile
from typing import TypeAlias

from partita.claims.workloads import workloads_of
from partita.console.page_state import PageState
from partita.models import Phase
from partita.models.quantities import MEBI
from partita.store.state import State

__all__ = ["PERIOD", "History"]

PERIOD = 15
"""Seconds between two samples."""
HOURS = 6
_SAMPLES = HOURS * 3600 // PERIOD
_UNKNOWN = 2**32 - 1

Sample: TypeAlias = tuple[int | None, ...]


class Samples:
    """The last samples of each partition or slice, in a compact form: there may be thousands.

    Parameters
    ----------
    units
        The unit of each number of a sample. A number has 32 bits; 1,000 samples of four numbers
        take 16 KB.
    kept
        Most samples of one partition or slice.
    """

    def __init__(self, units: tuple[int, ...], kept: int) -> None:
        self._units = units
        self._kept = kept
        self._of: defaultdict[str, array[int]] = defaultdict(partial(array, "I"))

    def add(self, name: str, *sample: int | None) -> None:
        """Add a sample; None is a number that is unknown."""
        units = zip(sample, self._units, strict=True)
        numbers = self._of[name]
        numbers.extend(_UNKNOWN if n is None else n // unit for n, unit in units)
        del numbers[: -len(self._units) * self._kept]

    def keep_only(self, names: Container[str]) -> None:
        """Forget all others."""
        for name in [name for name in self._of if name not in names]:
            del self._of[name]

    def of(self, name: str) -> list[Sample]:
        """Return the samples of one; empty if there is none."""
        found = [
            None if number == _UNKNOWN else number * self._units[place % len(self._units)]
            for place, number in enumerate(self._of.get(name, ()))
        ]
        return list(zip(*[iter(found)] * len(self._units), strict=True))

    def all(self) -> dict[str, list[Sample]]:
        """Return all samples by name."""
        return {name: self.of(name) for name in self._of}


class History:
    """The samples of partitions, also from before the start, and of slices, since the start."""

    def __init__(self) -> None:
        self.partitions = Samples((1, MEBI, MEBI, 1, MEBI), _SAMPLES)
        """Unix time; allocated bytes; used bytes; waiting jobs; allocatable bytes."""
        self.slices = Samples((1, MEBI, MEBI, 1), _SAMPLES // 2)
        """Unix time; allocated bytes; used bytes; percent of the time in which its kernels ran. By
        the UID of the claim."""

    def recall(self, state: State, page: PageState, now: datetime) -> None:
        """Compute the samples of the hours before now from the statuses of jobs and workloads.

        Deleted jobs and workloads that have ended are missing, so the values may be too low. The
        used memory is unknown.
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
            for view in workloads_of(entity["name"], state):
                if view.place is not None:
                    amount = (view.memory or 0) * view.gpus
                    _add(allocated, amount, start, view.place.since, None)
                if view.phase == "Queued" or view.place is not None:
                    until = view.place.since if view.place is not None else None
                    _add(waiting, 1, start, view.created, until)
            points = [
                (start + place * PERIOD, memory, None, jobs, entity["allocatable"])
                for place, (memory, jobs) in enumerate(
                    zip(accumulate(allocated), accumulate(waiting), strict=True)
                )
            ]
            for point in dropwhile(lambda point: not (point[1] or point[3]), points[:-1]):
                self.partitions.add(entity["name"], *point)

    def sample(self, state: State, page: PageState, now: datetime) -> dict[str, list[Sample]]:
        """Add the samples of this moment, and return those of partitions."""
        time = int(now.timestamp())
        added: dict[str, list[Sample]] = {}
        for seen in page.values():
            if seen["kind"] == "partition" and seen["exists"]:
                numbers = ("allocated", "used", "waiting", "allocatable")
                point = (time, *(seen[number] for number in numbers))
                self.partitions.add(seen["name"], *point)
                added[seen["name"]] = [point]
        self.partitions.keep_only(added)
        there = set()
        for server in state.servers.values():
            for uid, entry in server.status.allocations.items():
                if (use := server.status.uses.get(uid)) is not None:
                    there.add(uid)
                    self.slices.add(uid, time, entry.memory, use.memory, use.gpu_utilization)
        self.slices.keep_only(there)
        return added


def _add(
    steps: list[int], amount: int, start: int, since: datetime | None, until: datetime | None
) -> None:
    """Add an amount at the step of `since` and subtract it at the step of `until`."""
    if since is None or (until is not None and until < since):
        return
    for time, change in ((since, amount), (until, -amount)):
        if time is not None and (place := (int(time.timestamp()) - start) // PERIOD) < len(steps):
            steps[max(0, place)] += change
