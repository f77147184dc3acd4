"""The workloads of the benchmark: jobs of a family that arrive in a pattern, at a load, on GPUs.

Families:

- the study's five workloads, by their names;
- `mix`: the study's applications, each as likely as the others;
- `random`: random applications of the kind that `dqn` is trained on, with other seeds;
- `heavy-tailed`: a kind on which nothing was chosen. Few applications make most of the jobs
  (Zipf), run times are log-normal (a median of 2 minutes, a mean of 6), kernels take memory
  bandwidth, and the GPUs are of another product;
- `openb`: tasks of the trace in their own order and at their own times, sped up to the load. A
  tenth of them or so are longer than `_LONGEST` and are cut there, or one task would decide.

Load. Of the trace, what is asked for of the GPUs' time. Of the others, in terms of the rate at
which the fastest heuristic works off a full queue of such jobs on eight GPUs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import exp, log
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import NamedTuple

from bench.policies.arrivals import times
from partita_policies import GPU, create
from partita_policies.types import Node, Profile
from partita_research.simulator import Application, Task, jitter, simulate, task_of
from partita_research.simulator.openb import (
    TraceTask,
    cluster_of,
    read_nodes,
    read_tasks,
    simulated,
)
from partita_research.simulator.products import PRODUCTS
from partita_research.simulator.synthetic import random_application, random_tasks
from partita_research.simulator.workloads import STUDY_WORKLOADS, study_applications, study_workload

__all__ = ["TRACES", "Scene", "World", "rate", "traces", "world"]

NOISE = 0.2
"""What a measured profile may be off by."""
FIRST_SEED = 2 * 10**9
"""First seed of random workloads here: no training and no choice of settings draws from here on."""
TRACES = Path(__file__).parents[4] / "shared" / "traces" / "openb"
"""Where the traces lie: a folder `shared` beside the checkout."""
_APPLICATIONS = 30
_PER_NODE = 8
_SAMPLE, _SAMPLE_GPUS = 160, 8
"""Jobs and GPUs by which the rate of a family is measured."""
_REFERENCES = ("fifo", "tetris", "fgd")
_WORKED_OFF = 0.8
"""Share of the work after which the queue no longer fills the GPUs."""
_SIGMA = 1.5
_MEDIAN = 120.0
"""Log-normal run times of `heavy-tailed`: assumptions, as wide as openb's (10 s to hours)."""
_BANDWIDTH = 0.8
"""Most of the memory bandwidth that a kernel of `heavy-tailed` takes: an assumption."""
_LONGEST = 6 * 3600.0
_MEMORY_NOISE = 0.15
"""Of the scenes with memory kills. Memory is booked from the profile with a margin of 10 %."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A workload but for its seed."""

    family: str
    jobs: int = 30
    gpus: int = 1
    pattern: str = "at once"
    load: float = 0.0
    """As a share; of no meaning if all arrive at once."""
    services: int = 0
    """Jobs that are there from the start and never end, beside the others."""
    wrong: bool = False
    """Whether profiles are wrong by a factor of two."""
    unknown: bool = False
    """Whether jobs have neither a profile nor a duration, as on the first day of a cluster."""
    kills: bool = False
    """Whether memory varies so much that jobs are killed (of random jobs only)."""

    @property
    def name(self) -> str:
        """What it is called in results."""
        when = f" {self.pattern} {100 * self.load:.0f} %" if self.load else ""
        parts = [
            f"{self.family} {self.jobs}x{self.gpus}{when}",
            "with services" if self.services else "",
            "wrong profiles" if self.wrong else "",
            "no profiles" if self.unknown else "",
            "memory kills" if self.kills else "",
        ]
        return ", ".join(filter(None, parts))


class World(NamedTuple):
    """What one simulation runs on."""

    tasks: Sequence[Task]
    gpus: Sequence[GPU]
    nodes: Sequence[Node] = ()


def traces() -> dict[str, Path]:
    """Return the lists of tasks of the openb trace that are there, by name."""
    prefix = "openb_pod_list_"
    return {path.stem.removeprefix(prefix): path for path in sorted(TRACES.glob(f"{prefix}*.csv"))}


def world(scene: Scene, seed: int, work_rate: float = 0.0) -> World:
    """Return the jobs and GPUs of a scene.

    Parameters
    ----------
    seed
        The same seed gives the same workload, whatever the load.
    work_rate
        What `rate` returned, for a scene with a load.
    """
    if scene.family == "openb":
        return _openb(scene, seed)
    card = _card(scene.family)
    gpus = [replace(card, id=f"gpu-{n}", node=f"node-{n // _PER_NODE}") for n in range(scene.gpus)]
    tasks = _FAMILIES.get(scene.family, _study)(scene, seed, card)
    if scene.wrong:
        tasks = _with_wrong_profiles(tasks, seed)
    if scene.unknown:
        tasks = [replace(one, job=replace(one.job, profile=None, duration=None)) for one in tasks]
    ending = tasks[scene.services :]
    interval = 0.0
    if scene.load:
        work = sum(task.truth.duration for task in ending) / len(ending)
        interval = work / (scene.load * work_rate * scene.gpus)
    arrivals = times(scene.pattern, len(ending), interval, seed)
    lasting = [
        replace(task, job=replace(task.job, lasting=True)) for task in tasks[: scene.services]
    ]
    return World(
        lasting
        + [
            replace(task, job=replace(task.job, submitted=time))
            for task, time in zip(ending, arrivals, strict=True)
        ],
        gpus,
    )


def rate(family: str, seed: int) -> float:
    """Return the seconds of work that a GPU does in a second while jobs of a family wait."""
    drawn = world(Scene(family, _SAMPLE, _SAMPLE_GPUS), seed)
    return max(_worked_off(drawn, policy) for policy in _REFERENCES)


def _worked_off(drawn: World, policy: str) -> float:
    result = simulate(drawn.tasks, drawn.gpus, create(policy))
    work = {task.job.id: task.truth.duration for task in drawn.tasks}
    ends = sorted((job.finish, work[job.job]) for job in result.finished if job.finish is not None)
    part = left = _WORKED_OFF * sum(work.values())
    for end, done in ends:
        left -= done
        if left <= 0:
            return part / end / len(drawn.gpus)
    return 0.0


def _card(family: str) -> GPU:
    card = study_workload(family if family in STUDY_WORKLOADS else "random").gpus[0]
    if family != "heavy-tailed":
        return card
    memory, sm_count, pcie = PRODUCTS["a100-40gb"]
    return replace(card, product="a100-40gb", memory=memory, sm_count=sm_count, pcie_bandwidth=pcie)


def _study(scene: Scene, seed: int, card: GPU) -> list[Task]:
    return jitter(study_workload(scene.family).tasks, seed, NOISE, largest=card.memory)


def _mix(scene: Scene, seed: int, card: GPU) -> list[Task]:
    random = Random(f"mix {seed}")
    known = list(study_applications().values())
    drawn = [random.choice(known) for _ in range(scene.jobs + scene.services)]
    return _jobs(drawn, seed, card)


def _random(scene: Scene, seed: int, card: GPU) -> list[Task]:
    count = scene.jobs + scene.services
    pool = min(_APPLICATIONS, 10 if scene.jobs < 100 else _APPLICATIONS)
    return random_tasks(
        FIRST_SEED + seed,
        count,
        card,
        applications=pool,
        noise=NOISE,
        memory_noise=_MEMORY_NOISE if scene.kills else None,
    )


def _heavy_tailed(scene: Scene, seed: int, card: GPU) -> list[Task]:
    random = Random(f"heavy-tailed {seed}")
    pool = [_long_or_short(random, f"app-{number}", card) for number in range(_APPLICATIONS)]
    shares = [1 / (rank + 1) for rank in range(len(pool))]
    return _jobs(random.choices(pool, shares, k=scene.jobs + scene.services), seed, card)


def _long_or_short(random: Random, name: str, card: GPU) -> Application:
    drawn = random_application(random, name, card)
    share = random.uniform(0.0, _BANDWIDTH)
    return replace(
        drawn,
        duration=max(1.0, exp(random.gauss(log(_MEDIAN), _SIGMA))),
        steps=tuple(replace(step, bandwidth=share * step.gpu) for step in drawn.steps),
    )


_FAMILIES: Mapping[str, Callable[[Scene, int, GPU], list[Task]]] = MappingProxyType(
    {"mix": _mix, "random": _random, "heavy-tailed": _heavy_tailed}
)


def _jobs(drawn: Sequence[Application], seed: int, card: GPU) -> list[Task]:
    tasks = [task_of(one, f"job-{n:05d}", largest=card.memory) for n, one in enumerate(drawn)]
    return jitter(tasks, seed, NOISE, largest=card.memory)


def _with_wrong_profiles(tasks: Sequence[Task], seed: int) -> list[Task]:
    """Halve or double the duration and, apart from it, the use in each application's profile."""
    random = Random(f"wrong {seed}")
    seen: dict[str, Profile] = {}
    changed = []
    for task in tasks:
        profile = task.job.profile or task.truth.profile()
        if profile.application not in seen:
            longer, busier = random.choice((0.5, 2.0)), random.choice((0.5, 2.0))
            steps = tuple(
                replace(
                    step,
                    gpu=min(busier * step.gpu, 100.0),
                    core=min(busier * step.core, 100.0),
                    pcie=busier * step.pcie,
                    bandwidth=min(busier * step.bandwidth, 100.0),
                )
                for step in profile.steps
            )
            seen[profile.application] = replace(
                profile, duration=longer * profile.duration, steps=steps
            )
        wrong = seen[profile.application]
        changed.append(replace(task, job=replace(task.job, profile=wrong, duration=wrong.duration)))
    return changed


@cache
def _trace() -> tuple[tuple[GPU, ...], tuple[Node, ...], tuple[TraceTask, ...]]:
    """Return two nodes of the trace with eight GPUs each, and the tasks for them by arrival."""
    nodes = read_nodes(TRACES / "openb_node_list_gpu_node.csv")
    gpus, hosts = cluster_of([node for node in nodes if node.gpus == _PER_NODE][:2])
    products = {gpu.product for gpu in gpus}
    tasks = [
        task
        for task in read_tasks(TRACES / "openb_pod_list_default.csv")
        if task.gpus and task.duration and (not task.products or products & set(task.products))
    ]
    return gpus, hosts, tuple(sorted(tasks, key=lambda task: task.created or 0.0))


def _openb(scene: Scene, seed: int) -> World:
    """Take tasks from the trace that no other seed below 20 has: the last ones first."""
    gpus, hosts, tasks = _trace()
    end = len(tasks) - seed * scene.jobs
    window = tasks[end - scene.jobs : end]
    if len(window) < scene.jobs:
        raise ValueError(f"openb: seed {seed}: the trace has only {len(tasks)} tasks")
    cut = [
        replace(task, deleted=began + min(task.duration or 1.0, _LONGEST))
        for task in window
        if (began := task.scheduled if task.scheduled is not None else task.created) is not None
    ]
    asked = sum((task.duration or 0.0) * task.milli_in_all / 1000 for task in cut)
    first, last = window[0].created or 0.0, window[-1].created or 0.0
    faster = (last - first) * scene.load * len(gpus) / asked
    return World(
        [
            simulated(task, f"{task.name}-{n}", ((task.created or 0.0) - first) / faster)
            for n, task in enumerate(cut)
        ],
        gpus,
        hosts,
    )
