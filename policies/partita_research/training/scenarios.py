"""What is learnt from: random workloads on one GPU, or a cluster's own applications.

Nothing that results are reported of is ever among them: neither the study's applications nor the
openb tasks.

Some workloads are of one sort, such as heavy or small jobs, others a mix of all (`_applications`).
All jobs arrive at once: work that arrives later would be a reward or a punishment that no choice
brought about. While it learns, profiles are exact and all applications as sensitive to the cache
as policies take them to be, so that what a choice brings is not lost among what no policy could
have known. The networks to keep are chosen on workloads with the noise of reality.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import log
from operator import mul
from pathlib import Path
from random import Random

from partita_policies.interference import TYPICAL_CACHE
from partita_policies.recordings import Recorded, RejectedLine, read_recordings
from partita_policies.types import GPU, Job, Profile, RunningJob
from partita_research.simulator.jitter import jitter
from partita_research.simulator.synthetic import random_application
from partita_research.simulator.tasks import Application, Task, task_of
from partita_research.training.learning_environment import Scenario

__all__ = ["NoApplicationsError", "Seen", "random_scenario", "recorded_scenarios", "seen_in"]

_GIB = 1 << 30
_HELD_OUT = 1_000_000_000
"""Seeds from here on are for validation."""
_MEMORY = (8, 11, 12, 16, 24, 32)
"""GiB of the GPUs: those of common products. Above, the interference model extrapolates its cache
term, measured with little memory, too far to learn from."""
_LINKS = (16, 32, 64)
"""GB/s: PCIe 3, 4 and 5 with 16 lanes."""
_JOBS = (16, 40)
_APPLICATIONS = (3, 14)
_ASPECTS = 4
_CHOICE = 4
"""Applications of which the one that suits a workload's leaning the most is taken."""
NOISE = 0.2
"""Of profiles in validation."""


class NoApplicationsError(ValueError):
    """There is no profile to learn from."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What recorded snapshots tell of a cluster."""

    jobs: tuple[Job, ...]
    """One of each application, with its profile."""
    gpus: tuple[GPU, ...]
    """One of each kind, empty."""
    refused: tuple[RejectedLine, ...] = ()
    """Lines that could not be used."""


def random_scenario(number: int) -> Scenario:
    """Draw a random workload and its GPU; numbers below 0 give those for validation."""
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
        return Scenario(_plain(tasks), gpu)
    return Scenario(jitter(tasks, _seed(number), NOISE, largest=gpu.memory), gpu)


def recorded_scenarios(seen: Seen) -> Callable[[int], Scenario]:
    """Return what draws workloads of a cluster's own applications.

    Raises
    ------
    NoApplicationsError
        Nothing was seen that has a profile, or no GPU.
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
    """Read which applications and GPUs recorded snapshots show.

    Parameters
    ----------
    paths
        Recordings, or folders of them.

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


def _note(line: Recorded, jobs: dict[str, Job], gpus: dict[tuple[str, int, int], GPU]) -> None:
    for gpu in line.snapshot.gpus:
        key = (gpu.product, gpu.memory, gpu.max_jobs)
        gpus.setdefault(key, replace(gpu, id="gpu-0", node="node-0", running=()))
        for running_job in gpu.running:
            _keep(running_job, jobs)
    for job in line.snapshot.jobs:
        _keep(job, jobs)


def _keep(holder: Job | RunningJob, jobs: dict[str, Job]) -> None:
    """Keep the application of a job with a profile; the latest profile is the best."""
    profile = holder.profile
    if profile is None or not profile.steps or not profile.duration or holder.alone:
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
    """Draw applications that have something in common, or nothing.

    A queue is seldom a mix of everything: there are days of large models, of long simulations, of
    small inferences. So a workload leans some way in what its applications use and how long they
    take, and keeps to it more or less strictly.
    """
    leaning = [random.gauss(0, 1) for _ in range(_ASPECTS)]
    strictness = random.random()

    def draw(place: int) -> Application:
        tries = _CHOICE if random.random() < strictness else 1
        some = [random_application(random, f"synthetic-{place}", gpu) for _ in range(tries)]
        return max(some, key=lambda one: sum(map(mul, leaning, _aspects(one, gpu))))

    return [draw(place) for place in range(count)]


def _aspects(one: Application, gpu: GPU) -> tuple[float, ...]:
    """Return SMs, memory, time and PCIe that an application takes, each about 0 to 1.

    By the ranges of `simulator.synthetic`.
    """
    count = len(one.steps)
    return (
        sum(step.core for step in one.steps) / count / 60,
        max(step.memory for step in one.steps) / gpu.memory,
        log(one.duration / 20) / 4,
        sum(step.pcie for step in one.steps) / count / (gpu.pcie_bandwidth or 1) * 4,
    )


def _plain(tasks: Sequence[Task]) -> list[Task]:
    """Return a workload in which all are as sensitive to the cache as policies take them to be."""
    return [replace(task, truth=replace(task.truth, cache=TYPICAL_CACHE)) for task in tasks]


def _seed(number: int) -> int:
    return number if number >= 0 else _HELD_OUT - number


def _random(number: int) -> Random:
    return Random(f"scenario {_seed(number)}")  # noqa: S311 - repeatable, not secret
