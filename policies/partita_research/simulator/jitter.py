"""Adds noise to a workload: profiles deviate from the truth, runs vary, the order is shuffled."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from partita_policies.simulator.tasks import Application, Task, allocation_for
from partita_policies.types import Profile, Step

__all__ = ["MEMORY_SHARE", "STEADY_SHARE", "jitter"]

STEADY_SHARE = 0.25
"""Share of the noise that applies to runs. An assumption: runs of a program with one input vary
little, and a single measurement on another day can deviate more."""
MEMORY_SHARE = 0.1
"""Share of the noise that applies to memory. An assumption: the input of a program determines its
allocations, and they are measured exactly."""


def jitter(
    tasks: Sequence[Task],
    seed: int,
    noise: float = 0.2,
    *,
    memory_noise: float | None = None,
    largest: int = 0,
) -> list[Task]:
    """Return a variation of a workload.

    Parameters
    ----------
    tasks
        The workload. A memory request that the operator derives from the profile is derived
        again; a stated request is kept.
    seed
        The same seed gives the same workload.
    noise
        Largest relative error (uniform) of the profile of an application; each application has one
        profile. Each of its steps has a further error of the same size. Memory and the runs vary
        by less.
    memory_noise
        Largest relative error (uniform) of the memory of a profile, and deviation of that of a run;
        by default `MEMORY_SHARE` of `noise`. The operator's margin of 10 % above the measured peak
        covers 0.05. Of 100 random jobs, on average 10 runs are killed with 0.1 and 25 with 0.2;
        they start again with more memory (8 seeds).
    largest
        Bytes of the largest GPU; 0 if unknown. Noise does not raise memory above it.

    Returns
    -------
    list of Task
        The jobs in another order, with the same arrival times.

    Raises
    ------
    ValueError
        A noise is not at least 0 and below 1.
    """
    memory_noise = noise * MEMORY_SHARE if memory_noise is None else memory_noise
    for name, amount in (("noise", noise), ("memory_noise", memory_noise)):
        if not 0 <= amount < 1:
            raise ValueError(f"{name}: {amount}: expected at least 0 and below 1")
    random = Random(f"jitter {seed}")  # noqa: S311 - repeatable, not secret
    measured: dict[str, Profile] = {}
    changed = []
    for task in tasks:
        job, truth = task.job, task.truth
        profile = job.profile or truth.profile()
        run = _run(truth, random, noise, memory_noise, largest)
        if truth.name not in measured:
            measured[truth.name] = _measured(truth, random, noise, memory_noise, largest)
        seen = measured[truth.name]
        memory = job.memory
        if memory == allocation_for(profile, largest):
            memory = allocation_for(seen, largest)
        changed.append(Task(replace(job, memory=memory, duration=seen.duration, profile=seen), run))
    times = sorted(task.job.submitted for task in changed)
    random.shuffle(changed)
    return [
        Task(replace(task.job, submitted=time), task.truth)
        for task, time in zip(changed, times, strict=True)
    ]


def _measured(
    truth: Application, random: Random, noise: float, memory_noise: float, largest: int
) -> Profile:
    duration = truth.duration * _factor(random, noise)
    levels = [_factor(random, noise) for _ in range(3)]
    memory = _factor(random, memory_noise)
    steps = (
        _scaled(step, [level * _factor(random, noise) for level in levels], memory, largest)
        for step in truth.steps
    )
    return Profile(truth.name, duration, tuple(steps))


def _run(
    truth: Application, random: Random, noise: float, memory_noise: float, largest: int
) -> Application:
    memory = _factor(random, memory_noise)
    noise *= STEADY_SHARE
    duration = truth.duration * _factor(random, noise)
    levels = [_factor(random, noise) for _ in range(3)]
    steps = tuple(_scaled(step, levels, memory, largest) for step in truth.steps)
    return replace(truth, duration=duration, steps=steps)


def _scaled(step: Step, levels: Sequence[float], memory: float, largest: int) -> Step:
    most = max(largest, step.memory) if largest else int(step.memory * memory)
    return replace(
        step,
        gpu=min(step.gpu * levels[0], 100.0),
        memory=min(int(step.memory * memory), most),
        core=min(step.core * levels[1], 100.0),
        pcie=step.pcie * levels[2],
        bandwidth=min(step.bandwidth * levels[0], 100.0),
    )


def _factor(random: Random, noise: float) -> float:
    return random.uniform(1 - noise, 1 + noise)
