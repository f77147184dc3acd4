"""Measures a run and merges the measurement into the application's profile.

Of runs that end by themselves, only those that succeeded are merged: a run that crashed or ran out
of memory used less than the application needs.
"""

from collections.abc import Sequence
from typing import Final

from partita.agent.usage.job_usage import TracePoint
from partita.agent.usage.neighbours import Times, shared_run, undisturbed
from partita.models.profile import (
    ApplicationProfileSpec,
    Environment,
    Measurement,
    ProfileStep,
)

__all__ = ["MEMORY_OF_RUNS", "measurement", "merge"]

MEMORY_OF_RUNS: Final = 10
"""Largest weight of the earlier runs relative to a new run. It limits how slowly a profile adapts
to changes of its application. An assumption."""
_MOST_MEASUREMENTS: Final = 32
"""GPU products in one profile: the limit of the resource."""
_MOST_SHARED: Final = 12
"""Runs beside other jobs in one measurement: the limit of the resource. Older ones are forgotten,
so that the evidence follows changes of the applications."""


def measurement(
    usage: Sequence[TracePoint],
    duration: float,
    where: Environment,
    beside: Times | None = None,
    *,
    pod_uid: str = "",
) -> Measurement:
    """Return the measurement of one run.

    Parameters
    ----------
    usage
        Usage in steps of equal length.
    duration
        Length of the run, seconds.
    where
        The node and the GPU.
    beside
        The applications that used the GPU at the same time, if the length of the run depends on
        them.
    pod_uid
        UID of the Pod of the run.
    """
    steps = tuple(
        ProfileStep(
            gpu_utilization=_percent(use.utilization) if use.memory else 0.0,
            gpu_memory=use.memory,
            sm_occupancy=_percent(use.occupancy),
            pcie_throughput=None if use.pcie is None else round(use.pcie),
            memory_utilization=_percent(use.bandwidth),
        )
        for use in usage
    )
    duration, times = round(duration, 3), beside or {}
    run = shared_run(times, duration, pod_uid)
    return Measurement(
        environment=where,
        duration=duration,
        runs=1,
        steps=steps,
        undisturbed=int(undisturbed(times)),
        shared_runs=(run,) if run and not undisturbed(times) else (),
    )


def merge(known: ApplicationProfileSpec, new: Measurement) -> ApplicationProfileSpec:
    """Merge a run into a profile.

    Each GPU product has its own measurement: a run on another product does not change it. Steps are
    equal shares of a run, so runs of different lengths are merged step by step. Duration, usage and
    memory become the mean of the runs; for duration and usage, of those without other jobs on the
    GPU, if there are any. Memory is never below that of the newest run: an allocation
    that is too small makes a job fail, and one that is too large only occupies memory.
    """
    product = new.environment.product
    found = next((m for m in known.measurements if m.environment.product == product), None)
    if found is None:
        kept = sorted(known.measurements, key=lambda m: m.runs)[-(_MOST_MEASUREMENTS - 1) :]
        return known.model_copy(update={"measurements": (*kept, new)})
    weights = _weights(found, new)
    count = max(len(found.steps), len(new.steps))
    steps = tuple(
        _mix(old, fresh, weights, min(found.runs, MEMORY_OF_RUNS))
        for old, fresh in zip(_stretch(found.steps, count), _stretch(new.steps, count), strict=True)
    )
    merged = Measurement(
        environment=new.environment,
        duration=round(_mean(found.duration, new.duration, weights), 3),
        runs=found.runs + 1,
        steps=steps,
        undisturbed=found.undisturbed + new.undisturbed,
        shared_runs=(*new.shared_runs, *found.shared_runs)[:_MOST_SHARED],
    )
    return known.model_copy(
        update={"measurements": tuple(merged if m is found else m for m in known.measurements)}
    )


def _weights(found: Measurement, new: Measurement) -> tuple[float, float]:
    """Return how much the earlier runs and a new run count for the duration and the use.

    A run beside other jobs is longer and uses less in a second than an undisturbed one.
    """
    if found.undisturbed:
        return (min(found.undisturbed, MEMORY_OF_RUNS), 1) if new.undisturbed else (1, 0)
    return (0, 1) if new.undisturbed else (min(found.runs, MEMORY_OF_RUNS), 1)


def _stretch(steps: Sequence[ProfileStep], count: int) -> list[ProfileStep]:
    """Repeat steps to get `count` steps; each step keeps its share of the run."""
    return [steps[index * len(steps) // count] for index in range(count)]


def _mix(
    old: ProfileStep, new: ProfileStep, weights: tuple[float, float], runs: int
) -> ProfileStep:
    memory = round(_mean(old.gpu_memory, new.gpu_memory, (runs, 1)))
    return ProfileStep(
        gpu_utilization=_optional(old.gpu_utilization, new.gpu_utilization, weights),
        gpu_memory=max(new.gpu_memory, memory),
        sm_occupancy=_optional(old.sm_occupancy, new.sm_occupancy, weights),
        pcie_throughput=_whole(_optional(old.pcie_throughput, new.pcie_throughput, weights)),
        memory_utilization=_optional(old.memory_utilization, new.memory_utilization, weights),
    )


def _optional(old: float | None, new: float | None, weights: tuple[float, float]) -> float | None:
    if old is None or new is None:
        return old if new is None else new
    return round(_mean(old, new, weights), 2)


def _mean(old: float, new: float, weights: tuple[float, float]) -> float:
    return (old * weights[0] + new * weights[1]) / sum(weights)


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _percent(value: float | None) -> float | None:
    return None if value is None else round(min(100.0, max(0.0, value)), 2)
