"""Statistics of the simulations of a policy. Pure."""

from collections.abc import Sequence
from statistics import fmean
from typing import cast

from typing_extensions import TypedDict

from partita_research.estimates import quantile
from partita_research.simulator import Result, SimulatedOutcome

__all__ = ["TOLERANCE", "Figures", "figures_of", "gpu_hours", "mean_figures"]

TOLERANCE = 0.05
"""Slowdown up to which a job counts as not slowed down."""


class Figures(TypedDict):
    """Figures of a simulation, or their means over several; null for what is not defined.

    Times are in seconds, utilisation in percent. The mean of `maxSlowdown` is the maximum.
    """

    makespan: float | None
    """From the first arrival to the end of the last attempt; null if a job waits for ever."""
    meanCompletion: float | None
    """From arrival to finish; null if a job waits for ever."""
    meanWait: float | None
    """From arrival to the start of the last attempt."""
    meanSlowdown: float | None
    """Run time against the time alone on the same GPU."""
    maxSlowdown: float | None
    notSlowed: float
    """Jobs that finished with a slowdown of at most 1.05."""
    gpuUtilisation: float
    memoryUtilisation: float
    gpuHours: float
    """Hours in which GPUs had a job, added up."""
    outOfMemory: float
    """Attempts that ran out of memory."""
    reclaimed: float
    """Attempts whose memory above the guarantee was needed by other jobs."""
    finished: float
    services: float
    """Services that run at the end."""
    meanServiceSlowdown: float | None
    neverFits: float
    """Jobs that fit on no GPU."""
    neverPlaced: float
    """Jobs that still waited at the end."""
    decisions: float
    rejected: float
    """Placements that exceed a limit."""
    meanDecision: float | None
    """Latency on this machine."""
    p99Decision: float | None


def figures_of(result: Result) -> Figures:
    """Return the figures of a simulation.

    The makespan and the mean completion are infinite if a job was left to wait for ever.
    """
    waits = [job.wait for job in result.finished if job.wait is not None]
    slowdowns = [job.slowdown for job in result.finished if job.slowdown is not None]
    return {
        "makespan": result.makespan,
        "meanCompletion": result.mean_completion,
        "meanWait": _mean(waits),
        "meanSlowdown": _mean(slowdowns),
        "maxSlowdown": max(slowdowns, default=None),
        "notSlowed": result.unslowed(TOLERANCE),
        "gpuUtilisation": result.gpu_utilisation,
        "memoryUtilisation": result.memory_utilisation,
        "gpuHours": gpu_hours(result),
        "outOfMemory": result.kills,
        "reclaimed": result.reclaims,
        "finished": len(result.finished),
        "services": len(result.services),
        "meanServiceSlowdown": _mean([job.slowdown for job in result.services]),
        "neverFits": _count(result, SimulatedOutcome.NEVER_FITS),
        "neverPlaced": _count(result, SimulatedOutcome.NEVER_PLACED),
        "decisions": result.decisions,
        "rejected": result.rejected,
        "meanDecision": _mean(result.seconds),
        "p99Decision": quantile(result.seconds, 0.99) if result.seconds else None,
    }


def gpu_hours(result: Result) -> float:
    """Return the hours in which GPUs had a job, added up: what is paid if idle ones cost nothing.

    If all GPUs are paid from the first arrival to the last end, it is the makespan times their
    number.
    """
    spans: dict[str, list[tuple[float, float]]] = {}
    for attempt in result.attempts:
        for gpu in attempt.gpus:
            spans.setdefault(gpu, []).append((attempt.start, attempt.end))
    seconds = 0.0
    for on_gpu in spans.values():
        until = 0.0
        for start, end in sorted(on_gpu):
            seconds += max(0.0, end - max(start, until))
            until = max(until, end)
    return seconds / 3600


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _count(result: Result, outcome: SimulatedOutcome) -> int:
    return sum(job.outcome is outcome for job in result.jobs)


def mean_figures(results: Sequence[Result]) -> Figures:
    """Return the mean of each figure over several runs, but the maximum of `maxSlowdown`."""
    runs = [cast("dict[str, float | None]", figures_of(result)) for result in results]
    means: dict[str, float | None] = {}
    for name in runs[0]:
        values = [value for run in runs if (value := run[name]) is not None]
        if len(runs) == 1 or not values:
            means[name] = runs[0][name]
        else:
            means[name] = max(values) if name == "maxSlowdown" else fmean(values)
    return cast("Figures", means)
