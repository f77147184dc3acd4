"""Training workloads: random workloads, or the applications of a cluster.

They never include workloads for which results are reported: neither the applications of the study
nor the openb tasks.

Some workloads consist of similar jobs, such as heavy or small ones; others are mixed
(`_applications`). A scenario has one GPU and all its jobs at once; a training also has several GPUs
and arrivals (`training_workload`).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import log
from operator import mul
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np

from partita_policies.interference import TYPICAL_CACHE
from partita_policies.planner.policy import GOALS, PlannerParameters, settings_of
from partita_policies.recordings import Recorded, RejectedLine, read_recordings
from partita_policies.simulator.tasks import Application, Task, task_of
from partita_policies.types import GPU, Job, Objective, Profile, RunningJob
from partita_research.simulator.jitter import jitter
from partita_research.simulator.synthetic import random_application
from partita_research.training.workload import TrainingWorkload

__all__ = [
    "NoApplicationsError",
    "Scenario",
    "Seen",
    "random_scenario",
    "recorded_scenarios",
    "seen_in",
    "training_workload",
]

_GIB = 1 << 30
_HELD_OUT = 1_000_000_000
"""First seed of the validation workloads."""
_MEMORY = (8, 11, 12, 16, 24, 32)
"""GiB of the GPUs, as in common products. The cache term of the interference model was measured
with little memory; it extrapolates too far for training on larger GPUs."""
_LINKS = (16, 32, 64)
"""GB/s: PCIe 3, 4 and 5 with 16 lanes."""
_JOBS = (16, 40)
_APPLICATIONS = (3, 14)
_ASPECTS = 4
_CHOICE = 4
"""Candidate applications of which the one that best matches the bias of a workload is taken."""
NOISE = 0.2
"""Noise of profiles in validation."""


_SEVERAL = {Objective.MAKESPAN: 0.3, Objective.COMPLETION: 0.65}
"""Share of the workloads with several GPUs. Without arrivals, one GPU shows nearly all there is to
learn, in the least time."""
_GPUS = (2, 3, 4, 6, 8, 12, 16)
_JOBS_PER_GPU = (4, 14)
_LOADS = (0.7, 1.1)
"""Arriving work as a share of what the prior alone does at once."""
_SATURATED = 0.9
"""Share of a makespan in which the GPUs are about full: at its end they run empty."""


class Scenario(NamedTuple):
    """Tasks for one GPU, which they share by MPS."""

    tasks: Sequence[Task]
    gpu: GPU


class NoApplicationsError(ValueError):
    """The recordings contain no usable profile or GPU."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Applications and GPUs of a cluster, from recorded snapshots."""

    jobs: tuple[Job, ...]
    """One job of each application, with its profile."""
    gpus: tuple[GPU, ...]
    """One GPU of each kind, empty."""
    refused: tuple[RejectedLine, ...] = ()
    """Rejected lines."""


def random_scenario(number: int) -> Scenario:
    """Draw a random workload and its GPU; negative numbers give validation workloads."""
    random = _random(number)
    gpu = GPU(
        "gpu-0",
        "node-0",
        random.choice(_MEMORY) * _GIB,
        max_jobs=48,
        pcie_bandwidth=random.choice(_LINKS) * 10**9,
    )
    pool = _applications(random, random.randint(*_APPLICATIONS), gpu)
    shares = [random.expovariate(1.0) for _ in pool]
    drawn = random.choices(pool, shares, k=random.randint(*_JOBS))
    tasks = [task_of(one, f"job-{n:05d}", largest=gpu.memory) for n, one in enumerate(drawn)]
    if number >= 0:
        return Scenario(tasks, gpu)
    return Scenario(jitter(tasks, _seed(number), NOISE, largest=gpu.memory), gpu)


def recorded_scenarios(seen: Seen) -> Callable[[int], Scenario]:
    """Return a function that draws workloads of the applications of a cluster.

    Raises
    ------
    NoApplicationsError
        The recordings contain no application with a profile, or no GPU.
    """
    if not (seen.jobs and seen.gpus):
        raise NoApplicationsError(
            "no snapshot shows a job with a measured profile, and a GPU that has room for it"
        )

    def draw(number: int) -> Scenario:
        random = _random(number)
        gpu = random.choice(seen.gpus)
        fitting = [job for job in seen.jobs if job.memory <= gpu.memory]
        most = min(len(fitting), _APPLICATIONS[1])
        pool = random.sample(fitting, random.randint(min(_APPLICATIONS[0], most), most))
        count = random.randint(*_JOBS)
        tasks = [_task(random.choice(pool), f"job-{place:05d}") for place in range(count)]
        noise = NOISE if number < 0 else 0.0
        return Scenario(jitter(tasks, _seed(number), noise, largest=gpu.memory), gpu)

    return draw


def seen_in(paths: Iterable[Path]) -> Seen:
    """Read the applications and GPUs in recorded snapshots.

    Parameters
    ----------
    paths
        Recordings or folders of recordings.

    Raises
    ------
    OSError
        A file cannot be read.
    """
    jobs: dict[str, Job] = {}
    gpus: dict[tuple[str, int, int], GPU] = {}
    refused: list[RejectedLine] = []
    for line in read_recordings(paths):
        if isinstance(line, RejectedLine):
            refused.append(line)
        else:
            _note(line, jobs, gpus)
    largest = max((gpu.memory for gpu in gpus.values()), default=0)
    usable = tuple(job for _, job in sorted(jobs.items()) if job.memory <= largest)
    roomy = [gpu for _, gpu in sorted(gpus.items()) if any(j.memory <= gpu.memory for j in usable)]
    return Seen(usable, tuple(roomy), tuple(refused))


def training_workload(
    draw: Callable[[int], Scenario], number: int, objective: Objective
) -> TrainingWorkload:
    """Make a workload for a training, some with several GPUs and with arrivals."""
    scenario, random = draw(number), Random(f"workload {number}")  # noqa: S311 - repeatable
    several = random.random() < _SEVERAL[objective]
    if not several:
        return TrainingWorkload(scenario.tasks, [scenario.gpu])
    gpus = random.choice(_GPUS)
    count = int(gpus * random.uniform(*_JOBS_PER_GPU) + _JOBS[0])
    tasks = [scenario.tasks[place % len(scenario.tasks)] for place in range(count)]
    random.shuffle(tasks)
    cluster = [replace(scenario.gpu, id=f"gpu-{n}", node=f"node-{n}") for n in range(gpus)]
    workload = TrainingWorkload(tasks, cluster)
    if objective is Objective.COMPLETION or random.random() < _SEVERAL[Objective.MAKESPAN]:
        prior = settings_of(GOALS[Objective.MAKESPAN], None, PlannerParameters(work=0))
        each = workload.play(prior).makespan * _SATURATED / count
        load = random.uniform(*_LOADS)
        pauses = [random.expovariate(1.0) for _ in range(count)]
        workload.arrive(np.cumsum(pauses) * each / load)
    return workload


def _note(line: Recorded, jobs: dict[str, Job], gpus: dict[tuple[str, int, int], GPU]) -> None:
    for gpu in line.snapshot.gpus:
        key = (gpu.product, gpu.memory, gpu.max_jobs)
        gpus.setdefault(key, replace(gpu, id="gpu-0", node="node-0", running=()))
        for running_job in gpu.running:
            _keep(running_job, jobs)
    for job in line.snapshot.jobs:
        _keep(job, jobs)


def _keep(holder: Job | RunningJob, jobs: dict[str, Job]) -> None:
    """Store the application of a job that ends and has a profile; the latest profile counts."""
    profile = holder.profile
    if profile is None or not profile.steps or not profile.duration:
        return
    if holder.alone or holder.lasting:
        return
    name = holder.application or profile.application
    jobs[name] = Job(
        id=name,
        name=name,
        namespace="recorded",
        memory=max(holder.memory, 1),
        application=name,
        thread_percent=holder.thread_percent,
        duration=profile.duration,
        profile=profile,
    )


def _task(like: Job, job_id: str) -> Task:
    profile = like.profile or Profile(like.application, 1.0, ())
    truth = Application(like.application, profile.duration, profile.steps, TYPICAL_CACHE)
    task = task_of(truth, job_id, memory=like.memory)
    return replace(task, job=replace(task.job, thread_percent=like.thread_percent))


def _applications(random: Random, count: int, gpu: GPU) -> list[Application]:
    """Draw applications with a common bias of random strength.

    A real queue is rarely a mix of everything: on some days it has large models, on others long
    simulations or small inference jobs. Therefore a workload has a bias in the resource use and
    the duration of its applications.
    """
    leaning = [random.gauss(0, 1) for _ in range(_ASPECTS)]
    strictness = random.random()

    def draw(place: int) -> Application:
        tries = _CHOICE if random.random() < strictness else 1
        some = [random_application(random, f"synthetic-{place}", gpu) for _ in range(tries)]
        return max(some, key=lambda one: sum(map(mul, leaning, _aspects(one, gpu))))

    return [draw(place) for place in range(count)]


def _aspects(one: Application, gpu: GPU) -> tuple[float, ...]:
    """Return SM use, memory, duration and PCIe use of an application, each about 0 to 1.

    The scales are the ranges of `simulator.synthetic`.
    """
    count = len(one.steps)
    return (
        sum(step.core for step in one.steps) / count / 60,
        max(step.memory for step in one.steps) / gpu.memory,
        log(one.duration / 20) / 4,
        sum(step.pcie for step in one.steps) / count / (gpu.pcie_bandwidth or 1) * 4,
    )


def _seed(number: int) -> int:
    return number if number >= 0 else _HELD_OUT - number


def _random(number: int) -> Random:
    return Random(f"scenario {_seed(number)}")  # noqa: S311 - repeatable, not secret
