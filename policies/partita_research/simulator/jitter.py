"""Makes a workload less certain: measured profiles err, runs differ, the order is another."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from partita_policies.types import Profile, Step
from partita_research.simulator.tasks import Application, Task, allocation_for

__all__ = ["MEMORY_SHARE", "STEADY_SHARE", "jitter"]

STEADY_SHARE = 0.25
"""Part of the noise by which runs differ from each other. An assumption: a program with one input
repeats well; what was measured once, and on another day, may be further off."""
MEMORY_SHARE = 0.1
"""Part of the noise by which memory differs. An assumption: what a program allocates follows from
its input, and is read off exactly."""


def jitter(tasks: Sequence[Task], seed: int, noise: float = 0.2, *, largest: int = 0) -> list[Task]:
    """Return a workload like another one.

    Parameters
    ----------
    tasks
        The workload. A request that the operator derives from the profile is derived again; a
        stated request stays.
    seed
        The same seed gives the same workload.
    noise
        How far the figures of the one profile that policies see of an application may be from
        the truth, as a share (uniform); its steps err on their own by the same again. Memory and
        the runs themselves differ by less.
    largest
        Bytes of the largest GPU: nobody comes to ask for more who did not before; 0 for unknown.

    Returns
    -------
    list of Task
        The jobs in another order; they arrive at the same times.

    Raises
    ------
    ValueError
        The noise is not at least 0 and below 1.
    """
    if not 0 <= noise < 1:
        raise ValueError(f"noise: {noise}: expected at least 0 and below 1")
    random = Random(f"jitter {seed}")  # noqa: S311 - repeatable, not secret
    measured: dict[str, Profile] = {}
    changed = []
    for task in tasks:
        job, truth = task.job, task.truth
        profile = job.profile or truth.profile()
        run = _run(truth, random, noise, largest)
        if truth.name not in measured:
            measured[truth.name] = _measured(truth, random, noise, largest)
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


def _measured(truth: Application, random: Random, noise: float, largest: int) -> Profile:
    duration = truth.duration * _factor(random, noise)
    levels = [_factor(random, noise) for _ in range(3)]
    memory = _factor(random, noise * MEMORY_SHARE)
    steps = (
        _scaled(step, [level * _factor(random, noise) for level in levels], memory, largest)
        for step in truth.steps
    )
    return Profile(truth.name, duration, tuple(steps))


def _run(truth: Application, random: Random, noise: float, largest: int) -> Application:
    memory = _factor(random, noise * MEMORY_SHARE)
    noise *= STEADY_SHARE
    duration = truth.duration * _factor(random, noise)
    levels = [_factor(random, noise) for _ in range(3)]
    steps = tuple(_scaled(step, levels, memory, largest) for step in truth.steps)
    return replace(truth, duration=duration, steps=steps)


def _scaled(step: Step, levels: Sequence[float], memory: float, largest: int) -> Step:
    most = max(largest, step.memory) if largest else int(step.memory * memory)
    return Step(
        gpu=min(step.gpu * levels[0], 100.0),
        memory=min(int(step.memory * memory), most),
        core=min(step.core * levels[1], 100.0),
        pcie=step.pcie * levels[2],
    )


def _factor(random: Random, noise: float) -> float:
    return random.uniform(1 - noise, 1 + noise)
