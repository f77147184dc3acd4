"""What a cluster learns from a simulated workload for the next one: its co-runs.

As on a cluster, the evidence rests on the lengths of runs, on what ran beside them and on profiles,
not on the truth of the simulation.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean

from partita_policies.co_runs import ObservedRun, co_runs
from partita_policies.forecast import mean_load, phases_of
from partita_policies.interference import slowdowns
from partita_policies.types import GPU, CoRun, Profile, Sharing
from partita_research.simulator.results import Result, SimulatedAttempt, SimulatedOutcome
from partita_research.simulator.tasks import Task

__all__ = ["experienced"]


def experienced(tasks: Sequence[Task], result: Result) -> list[Task]:
    """Return tasks whose profiles know what applications ran together in a result under MPS.

    The lengths of runs are compared with the mean of the application's undisturbed ones. Jobs on
    several GPUs say nothing.
    """
    if result.sharing is not Sharing.MPS:
        return [*tasks]
    profiles = {t.job.id: t.job.profile for t in tasks if t.job.profile and t.job.profile.steps}
    gpus = {gpu.id: gpu for gpu in result.gpus}
    there: dict[str, list[SimulatedAttempt]] = defaultdict(list)
    lengths: dict[str, list[float]] = defaultdict(list)
    for attempt in result.attempts:
        for gpu in attempt.gpus:
            there[gpu].append(attempt)
        if attempt.outcome is SimulatedOutcome.FINISHED and attempt.job in profiles:
            lengths[profiles[attempt.job].application].append(attempt.alone)
    runs: dict[str, list[ObservedRun]] = defaultdict(list)
    for attempt in result.attempts:
        profile = profiles.get(attempt.job)
        ended = attempt.outcome is SimulatedOutcome.FINISHED and attempt.end > attempt.start
        if ended and len(attempt.gpus) == 1 and profile is not None:
            (gpu,) = attempt.gpus
            alone = fmean(lengths[profile.application])
            beside = [one for one in there[gpu] if one is not attempt]
            run = _observed(attempt, alone, beside, profiles, gpus[gpu])
            runs[profile.application].append(run)
    seen = {application: co_runs(found) for application, found in runs.items()}
    return [_taught(task, seen) for task in tasks]


def _observed(
    attempt: SimulatedAttempt,
    alone: float,
    beside: Sequence[SimulatedAttempt],
    profiles: Mapping[str, Profile],
    gpu: GPU,
) -> ObservedRun:
    """Compare a run with its prediction, from one start or end of a neighbour to the next."""
    others = [o for o in beside if o.start < attempt.end and o.end > attempt.start]
    times = {attempt.start, attempt.end, *(t for o in others for t in (o.start, o.end))}
    bounds = sorted(time for time in times if attempt.start <= time <= attempt.end)
    own = mean_load(phases_of(profiles[attempt.job], gpu))
    length, work = attempt.end - attempt.start, 0.0
    parts = []
    for since, until in pairwise(bounds):
        group = [o for o in others if o.start <= since and o.end >= until and o.job in profiles]
        loads = [own, *(mean_load(phases_of(profiles[o.job], gpu)) for o in group)]
        work += (until - since) / slowdowns(loads, Sharing.MPS)[0]
        parts += [(profiles[o.job].application, (until - since) / length) for o in group]
    return ObservedRun(length / alone, length / work, tuple(parts))


def _taught(task: Task, seen: Mapping[str, tuple[CoRun, ...]]) -> Task:
    profile = task.job.profile
    if profile is None or not seen.get(profile.application):
        return task
    known = replace(profile, co_runs=seen[profile.application])
    return Task(replace(task.job, profile=known), task.truth)
