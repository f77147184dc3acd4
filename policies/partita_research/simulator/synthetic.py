"""Random applications and workloads for training and tests.

The load profiles have the shapes that the DqnGPU study describes in section III.1: training and
inference load their data and then have a constant load, simulations go through phases, in steps or
gradually, and some request their memory only after half of the work. The amounts are drawn from
ranges that are assumptions. The applications of the study are not used.
"""

from collections.abc import Callable, Sequence
from math import exp, log
from random import Random

from partita_policies.interference import TYPICAL_CACHE
from partita_policies.simulator.tasks import Application, Task, task_of
from partita_policies.types import GPU, Step
from partita_research.simulator.jitter import jitter

__all__ = ["random_application", "random_tasks"]

_STEPS = 20
_DURATIONS = (20.0, 1000.0)
"""Seconds, log-uniform."""
_MEMORY = (0.02, 0.85)
"""Peak as a share of the GPU's memory, log-uniform; busy applications tend to need more."""
_BUSY = (0.05, 1.0)
"""Peak share of the time in which a kernel runs, uniform."""
_OCCUPANCY = (0.25, 0.75)
"""SM occupancy while a kernel runs, uniform."""
_LINK = (0.005, 0.5)
"""Peak share of the PCIe link, log-uniform."""
_CACHE_SHAPE = 1.5
"""First parameter of the beta distribution of cache sensitivities."""

_Levels = list[tuple[float, float]]
"""Shares of the peak GPU utilisation and of the peak memory in each step."""


def random_application(random: Random, name: str, gpu: GPU) -> Application:
    """Draw an application that a GPU can run.

    Parameters
    ----------
    random
        Source of randomness.
    name
        Name of the application.
    gpu
        The GPU to which the duration and the resource shares refer.
    """
    heavy = random.random()
    busy = _between(_BUSY, 0.6 * heavy + 0.4 * random.random())
    memory = gpu.memory * _log_between(_MEMORY, (heavy + random.random()) / 2)
    occupancy = _between(_OCCUPANCY, random.random())
    link = gpu.pcie_bandwidth * _log_between(_LINK, random.random())
    levels = random.choice(_SHAPES)(random)
    steps = tuple(
        Step(
            gpu=100 * busy * share,
            memory=int(memory * of_memory),
            core=100 * busy * share * occupancy,
            pcie=link * share,
        )
        for share, of_memory in levels
    )
    cache = random.betavariate(_CACHE_SHAPE, _CACHE_SHAPE * (1 - TYPICAL_CACHE) / TYPICAL_CACHE)
    return Application(name, _log_between(_DURATIONS, random.random()), steps, cache)


def random_tasks(
    seed: int,
    jobs: int,
    gpu: GPU,
    *,
    applications: int = 10,
    interval: float = 0.0,
    noise: float = 0.2,
    memory_noise: float | None = None,
) -> list[Task]:
    """Draw a workload.

    Parameters
    ----------
    seed
        The same seed gives the same workload.
    jobs
        Number of jobs.
    gpu
        The GPU to which the durations of the applications refer.
    applications
        Number of applications from which the jobs are drawn.
    interval
        Mean seconds between arrivals (a Poisson process); 0 if all jobs arrive at once.
    noise, memory_noise
        As in `jitter`.
    """
    random = Random(f"synthetic {seed}")  # noqa: S311 - repeatable, not secret
    pool = [
        random_application(random, f"synthetic-{seed}-{number}", gpu)
        for number in range(applications)
    ]
    time = 0.0
    tasks = []
    for number in range(jobs):
        truth = random.choice(pool)
        tasks.append(task_of(truth, f"job-{number:05d}", largest=gpu.memory, submitted=time))
        time += random.expovariate(1 / interval) if interval else 0.0
    return jitter(tasks, seed, noise, memory_noise=memory_noise, largest=gpu.memory)


def _constant(random: Random) -> _Levels:
    """Return a loading phase followed by a constant load."""
    loading = random.randint(1, 3)
    start = [(random.uniform(0, 0.2), (step + 1) / (loading + 1)) for step in range(loading)]
    return start + [(1.0, 1.0)] * (_STEPS - loading)


def _ramp(random: Random) -> _Levels:
    """Return a gradual rise in memory, GPU utilisation or both."""
    gpu, memory = random.choice([(0.2, 0.05), (1.0, 0.05), (0.2, 1.0)])
    rises = [step // 2 / (_STEPS // 2 - 1) for step in range(_STEPS)]
    return [(gpu + (1 - gpu) * rise, memory + (1 - memory) * rise) for rise in rises]


def _stairs(random: Random) -> _Levels:
    """Return phases of different loads, rising or not."""
    phases = random.randint(2, 5)
    levels = [(random.uniform(0.2, 1.0), random.uniform(0.1, 1.0)) for _ in range(phases)]
    levels[random.randrange(phases)] = (1.0, 1.0)
    if random.random() < 0.5:
        levels.sort()
    return _spread(levels)


def _late_memory(random: Random) -> _Levels:
    """Return a load with little memory at first and the peak memory later."""
    late = random.randint(_STEPS // 4, 3 * _STEPS // 4)
    early = random.choice([0.0, 0.1])
    busy = sorted([random.uniform(0.2, 0.6), random.uniform(0.4, 1.0), 1.0])
    return [
        (level, early if step < late else 1.0)
        for step, (level, _) in enumerate(_spread([(level, 0.0) for level in busy]))
    ]


_SHAPES: Sequence[Callable[[Random], _Levels]] = (
    _constant,
    _constant,
    _ramp,
    _stairs,
    _late_memory,
)


def _spread(levels: _Levels) -> _Levels:
    return [levels[step * len(levels) // _STEPS] for step in range(_STEPS)]


def _between(ends: tuple[float, float], share: float) -> float:
    return ends[0] + (ends[1] - ends[0]) * share


def _log_between(ends: tuple[float, float], share: float) -> float:
    return exp(_between((log(ends[0]), log(ends[1])), share))
