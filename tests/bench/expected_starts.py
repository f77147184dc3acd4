"""How well expected starts come true in a simulation, and the changes that are said to hasten them.

The futures are compared with a moving average of recent waits. Both are corrected by a
`Calibration` that has seen the same jobs.

When a job arrives and waits, its changes are tried as `partita when` tries them: in the futures of
the unchanged job, and from profiles and requests alone. A change that is worth naming is then
checked twice: in the same futures simulated anew with the changed job, and in a second run of the
same workload in which the job arrives changed.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from time import thread_time

from bench.policies.scenes import World
from partita_policies import create
from partita_policies.simulator.engine import Simulation
from partita_policies.start_times.calibration import Calibration
from partita_policies.start_times.futures import Futures, Outlook, StartInterval
from partita_policies.start_times.history import PartitionHistory
from partita_policies.types import Job, Snapshot

_ROUND = 3
"""Decisions from one round of predictions to the next."""
_ASKED = 5
"""Jobs that wait when they arrive, from one whose changes are tried to the next."""
_BUDGET = 1.0
"""CPU time of the futures of a round or of a job, seconds."""
_RECENT = 20
"""Waits of which the moving average is taken."""
_LEARNT = 50
"""Starts of predicted jobs that only calibrate, before others count."""


@dataclass(slots=True)
class Stated:
    """What became of the intervals that were stated; times in seconds."""

    held: list[bool] = field(default_factory=list)
    """Whether each start was within its interval."""
    widths: list[float] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    """From the midpoint of each interval to the start."""

    def add(self, stated: StartInterval, start: float) -> None:
        """Add an interval, and when the job started."""
        self.held.append(stated.earliest <= start <= stated.latest)
        self.widths.append(stated.latest - stated.earliest)
        self.errors.append(abs((stated.earliest + stated.latest) / 2 - start))


@dataclass(slots=True)
class Evaluation:
    """What became of the predictions, and of the changes that were named."""

    futures: Stated = field(default_factory=Stated)
    average: Stated = field(default_factory=Stated)
    """Predictions of the moving average for the same jobs."""
    unsaid: int = 0
    """Jobs about which the futures said nothing until they started."""
    rounds: int = 0
    seconds: float = 0.0
    """CPU time of the rounds."""
    named: int = 0
    """Changes."""
    in_futures: int = 0
    """With these the job starts sooner and by the time said, in half of the same futures."""
    sooner: int = 0
    """With these it started sooner in the second run."""
    in_run: int = 0
    """With these it started sooner in the second run, and by the time said."""

    def predict_starts(self, world: World, policy: str) -> None:
        """Simulate a workload; predict the start of each job that waits, once."""
        simulation = Simulation(world.tasks, world.gpus, nodes=world.nodes)
        active, other = create(policy), create(policy)
        history, sampled, averaged = PartitionHistory(), Calibration(), Calibration()
        waits: deque[float] = deque(maxlen=_RECENT)
        asked: dict[str, tuple[StartInterval, StartInterval]] = {}
        waited: set[str] = set()
        """Jobs about which nothing has been said yet."""
        while (snapshot := simulation.next_decision()) is not None:
            history.observe(snapshot)
            now, started = snapshot.time, simulation.apply(active.decide(snapshot))
            for job in snapshot.jobs:
                if job.id not in started:
                    continue
                waits.append(now - job.submitted)
                self.unsaid += job.id in waited
                if (predicted := asked.pop(job.id, None)) is not None:
                    if sampled.accuracy.starts >= _LEARNT:
                        self.futures.add(predicted[0], now)
                        self.average.add(predicted[1], now)
                    sampled.started(job.id, now)
                    averaged.started(job.id, now)
            left = [job for job in snapshot.jobs if job.id not in started]
            new = [job for job in left if job.id not in asked]
            if simulation.decisions % _ROUND or not new or not waits:
                continue
            began, past = thread_time(), history.past()
            futures = Futures(snapshot, other, past, seed=self.rounds, budget=_BUDGET)
            outlook = futures.complete()
            self.seconds += thread_time() - began
            self.rounds += 1
            for job in new:
                start = outlook.starts.get(job.id)
                if start is None:
                    waited.add(job.id)
                    continue
                waited.discard(job.id)
                mean = max(job.submitted + fmean(waits), now)
                # Its middle is only the scale of errors: the average has one for all waits.
                by_average = averaged.predict(job.id, now, StartInterval(mean, now, mean))
                asked[job.id] = sampled.predict(job.id, now, start), by_average

    def try_changes(self, world: World, policy: str) -> None:
        """Simulate a workload; check the changes that are named for some of the jobs that wait."""
        simulation = Simulation(world.tasks, world.gpus, nodes=world.nodes)
        active, arrived = create(policy), 0
        said: list[tuple[Job, float]] = []
        starts: dict[str, float] = {}
        while (snapshot := simulation.next_decision()) is not None:
            started = simulation.apply(active.decide(snapshot))
            starts |= dict.fromkeys(started - starts.keys(), snapshot.time)
            for job in snapshot.jobs:
                if job.submitted == snapshot.time and job.id not in started:
                    arrived += 1
                    if arrived % _ASKED == 0:
                        said += self._named(snapshot, policy, job)
        for changed, latest in said:
            start = _start(changed, world, policy)
            sooner = start < starts[changed.id]
            self.sooner += sooner
            self.in_run += sooner and start <= latest

    def _named(self, snapshot: Snapshot, policy: str, job: Job) -> Iterator[tuple[Job, float]]:
        """Yield the changes of a job that are worth naming, each with the latest start it promises."""
        changes = {
            "change 0": replace(job, memory=job.memory // 2),
            "change 1": replace(job, thread_percent=50),
            "change 2": replace(job, priority=job.priority + 1),
        }
        tried = [replace(changed, id=name) for name, changed in changes.items()]
        outlook = _asked(snapshot, policy, job, tried)
        found = outlook.starts
        for name, changed in changes.items():
            if job.id in found and name in found and outlook.is_sooner(job.id, name):
                others = [one for one in snapshot.jobs if one.id != job.id]
                place = sum(one.priority >= changed.priority for one in others)
                others.insert(place, changed)
                asked = replace(snapshot, jobs=tuple(others))
                again = _asked(asked, policy, changed, []).starts.get(job.id)
                self.named += 1
                before = min(found[job.id].middle, found[name].latest)
                self.in_futures += again is not None and again.middle <= before
                yield changed, found[name].latest


def _asked(snapshot: Snapshot, policy: str, job: Job, tried: Sequence[Job]) -> Outlook:
    history = PartitionHistory()
    history.observe(snapshot)
    past = history.past()
    futures = Futures(snapshot, create(policy), past, budget=_BUDGET, only=job.id, changed=tried)
    return futures.complete()


def _start(changed: Job, world: World, policy: str) -> float:
    """Return when a job starts first if it arrives changed."""
    tasks = [
        replace(task, job=changed) if task.job.id == changed.id else task for task in world.tasks
    ]
    simulation, active = Simulation(tasks, world.gpus, nodes=world.nodes), create(policy)
    while (snapshot := simulation.next_decision()) is not None:
        if changed.id in simulation.apply(active.decide(snapshot)):
            return snapshot.time
    raise ValueError(f"{changed.id}: expected a job that starts")
