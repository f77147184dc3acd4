"""How well expected starts come true in a simulation, beside a moving average of recent waits."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from time import thread_time

from partita_policies.registry import create
from partita_policies.simulator.engine import Simulation
from partita_policies.simulator.tasks import Task
from partita_policies.start_times.calibration import Calibration
from partita_policies.start_times.futures import Futures, StartInterval
from partita_policies.start_times.history import PartitionHistory
from partita_policies.types import GPU, Node

__all__ = ["Evaluation", "Stated", "evaluate"]

_RECENT = 20
"""Waits of which the moving average is taken."""
_LEARNT = 50
"""Starts of predicted jobs that only calibrate, before others count."""


@dataclass(slots=True)
class Stated:
    """Intervals, in seconds from the time of each prediction, and when the jobs started."""

    intervals: list[StartInterval] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)

    def add(self, time: float, stated: StartInterval, start: float) -> None:
        """Add an interval that was stated at a time, and when the job started."""
        ends = (stated.earliest - time, stated.middle - time, stated.latest - time)
        self.intervals.append(StartInterval(*ends))
        self.starts.append(start - time)

    @property
    def coverage(self) -> float:
        """Share of the starts within their interval."""
        pairs = zip(self.intervals, self.starts, strict=True)
        return fmean(one.earliest <= start <= one.latest for one, start in pairs)

    @property
    def width(self) -> float:
        """Median seconds of an interval."""
        return median(one.latest - one.earliest for one in self.intervals)

    @property
    def error(self) -> float:
        """Median seconds from the midpoint of an interval to the start."""
        pairs = zip(self.intervals, self.starts, strict=True)
        return median(abs((one.earliest + one.latest) / 2 - start) for one, start in pairs)


@dataclass(slots=True)
class Evaluation:
    """Predictions of the futures and of the moving average for the same jobs."""

    futures: Stated = field(default_factory=Stated)
    average: Stated = field(default_factory=Stated)
    unsaid: int = 0
    """Jobs about which the futures said nothing until they started."""
    rounds: int = 0
    seconds: float = 0.0
    """CPU time of the rounds."""


def evaluate(
    tasks: Sequence[Task],
    gpus: Sequence[GPU],
    policy: str,
    *,
    nodes: Sequence[Node] = (),
    every: int = 8,
    budget: float = 1.0,
    into: Evaluation | None = None,
) -> Evaluation:
    """Simulate a workload; predict the start of each job that waits, once.

    Both predictions are corrected by a `Calibration` that has seen the same jobs.

    Parameters
    ----------
    every
        Decisions from one round of predictions to the next.
    budget
        CPU time of one round, seconds.
    into
        An evaluation to add to.
    """
    found = into or Evaluation()
    simulation, active, other = Simulation(tasks, gpus, nodes=nodes), create(policy), create(policy)
    history, sampled, averaged = PartitionHistory(), Calibration(), Calibration()
    waits: deque[float] = deque(maxlen=_RECENT)
    asked: dict[str, tuple[float, StartInterval, StartInterval]] = {}
    waited: set[str] = set()
    """Jobs about which nothing has been said yet."""
    while (snapshot := simulation.next_decision()) is not None:
        history.observe(snapshot)
        now, started = snapshot.time, simulation.apply(active.decide(snapshot))
        for job in snapshot.jobs:
            if job.id not in started:
                continue
            waits.append(now - job.submitted)
            found.unsaid += job.id in waited
            if (predicted := asked.pop(job.id, None)) is not None:
                time, by_futures, by_average = predicted
                if sampled.accuracy.starts >= _LEARNT:
                    found.futures.add(time, by_futures, now)
                    found.average.add(time, by_average, now)
                sampled.started(job.id, now)
                averaged.started(job.id, now)
        left = [job for job in snapshot.jobs if job.id not in started]
        new = [job for job in left if job.id not in asked]
        if simulation.decisions % every or not new or not waits:
            continue
        began = thread_time()
        past = history.past()
        outlook = Futures(snapshot, other, past, seed=found.rounds, budget=budget).complete()
        found.seconds += thread_time() - began
        found.rounds += 1
        for job in new:
            start = outlook.starts.get(job.id)
            if start is None:
                waited.add(job.id)
                continue
            waited.discard(job.id)
            mean = max(job.submitted + fmean(waits), now)
            # Its middle is only the scale of errors: the average has one for all waits.
            by_average = averaged.predict(job.id, now, StartInterval(mean, now, mean))
            asked[job.id] = now, sampled.predict(job.id, now, start), by_average
    return found
