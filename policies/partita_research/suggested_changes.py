"""How often changes that are said to make a job start sooner do so, in a simulation.

When a job arrives and waits, its changes are tried as `partita when` tries them: in the futures of
the unchanged job, and from profiles and requests alone. A change that is worth naming is then
checked twice: in the same futures simulated anew with the changed job, and in a second run of the
same workload in which the job arrives changed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from partita_policies.registry import create
from partita_policies.simulator.engine import Simulation
from partita_policies.simulator.tasks import Task
from partita_policies.start_times.futures import Futures, Outlook
from partita_policies.start_times.history import PartitionHistory
from partita_policies.types import GPU, Job, Node, Snapshot

__all__ = ["SuggestedChanges", "check_suggestions"]


@dataclass(slots=True)
class SuggestedChanges:
    """What became of the changes that were named."""

    named: int = 0
    in_futures: int = 0
    """With these the job starts sooner and by the time said, in half of the same futures."""
    in_run: int = 0
    """With these it started sooner in the second run, and by the time said."""
    sooner: int = 0
    """With these it started sooner in the second run."""

    @property
    def came_true(self) -> tuple[int, int, int]:
        """Return how many came true in the futures, sooner in the run, and by the time said."""
        return self.in_futures, self.sooner, self.in_run


def check_suggestions(
    tasks: Sequence[Task],
    gpus: Sequence[GPU],
    policy: str,
    *,
    nodes: Sequence[Node] = (),
    every: int = 5,
    budget: float = 1.0,
    into: SuggestedChanges,
) -> None:
    """Simulate a workload; check the changes that are named for some of the jobs that wait.

    Parameters
    ----------
    every
        Jobs that wait when they arrive, from one that is asked about to the next.
    budget
        CPU time of the futures of a job, seconds.
    into
        What is added to.
    """
    simulation, active, arrived = Simulation(tasks, gpus, nodes=nodes), create(policy), 0
    said: list[tuple[Job, float]] = []
    starts: dict[str, float] = {}
    while (snapshot := simulation.next_decision()) is not None:
        started = simulation.apply(active.decide(snapshot))
        starts |= dict.fromkeys(started - starts.keys(), snapshot.time)
        for job in snapshot.jobs:
            if job.submitted == snapshot.time and job.id not in started:
                arrived += 1
                if arrived % every == 0:
                    said += _named(snapshot, policy, job, budget, into)
    for changed, latest in said:
        second = [replace(one, job=changed) if one.job.id == changed.id else one for one in tasks]
        start = _start(changed.id, Simulation(second, gpus, nodes=nodes), policy)
        sooner = start < starts[changed.id]
        into.sooner += sooner
        into.in_run += sooner and start <= latest


def _named(
    snapshot: Snapshot, policy: str, job: Job, budget: float, into: SuggestedChanges
) -> list[tuple[Job, float]]:
    """Return the changes of a job that are worth naming, each with the latest start it promises."""
    changes = [
        replace(job, memory=job.memory // 2),
        replace(job, thread_percent=50),
        replace(job, priority=job.priority + 1),
    ]
    ids = [f"change {number}" for number in range(len(changes))]
    tried = [replace(one, id=name) for one, name in zip(changes, ids, strict=True)]
    outlook = _asked(snapshot, policy, job, tried, budget)
    found, named = outlook.starts, list[tuple[Job, float]]()
    for name, changed in zip(ids, changes, strict=True):
        if job.id in found and name in found and outlook.is_sooner(job.id, name):
            others = [one for one in snapshot.jobs if one.id != job.id]
            place = sum(one.priority >= changed.priority for one in others)
            others.insert(place, changed)
            asked = replace(snapshot, jobs=tuple(others))
            again = _asked(asked, policy, changed, [], budget).starts.get(job.id)
            into.named += 1
            before = min(found[job.id].middle, found[name].latest)
            into.in_futures += again is not None and again.middle <= before
            named.append((changed, found[name].latest))
    return named


def _asked(
    snapshot: Snapshot, policy: str, job: Job, tried: Sequence[Job], budget: float
) -> Outlook:
    history = PartitionHistory()
    history.observe(snapshot)
    past = history.past()
    futures = Futures(snapshot, create(policy), past, budget=budget, only=job.id, changed=tried)
    return futures.complete()


def _start(job_id: str, simulation: Simulation, policy: str) -> float:
    """Return when a job starts first."""
    active = create(policy)
    while (snapshot := simulation.next_decision()) is not None:
        if job_id in simulation.apply(active.decide(snapshot)):
            return snapshot.time
    raise ValueError(f"{job_id}: expected a job that starts")
