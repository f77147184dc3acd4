"""The result of simulations, as a table and as JSON. Pure."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from partita.cli.figures import gib, milliseconds, seconds, times
from partita.cli.workload import Batch
from partita_policies.simulator import Outcome, Result
from partita_policies.simulator.results import dump_result
from partita_policies.types import Job

__all__ = ["as_json", "figures_of", "rank", "report"]

TOLERANCE = 0.05
"""Slowdown up to which a job counts as not slowed down."""
_SHOWN = 5
"""Jobs that are named where some did not finish."""


def figures_of(result: Result) -> dict[str, float | int | None]:
    """Sum up a simulation. Times are in seconds, utilisation in percent."""
    waits = [job.wait for job in result.finished if job.wait is not None]
    slowdowns = [job.slowdown for job in result.finished if job.slowdown is not None]
    decisions = sorted(result.seconds)
    return {
        "makespan": result.makespan,
        "meanCompletion": result.mean_completion,
        "meanWait": fmean(waits) if waits else None,
        "meanSlowdown": fmean(slowdowns) if slowdowns else None,
        "maxSlowdown": max(slowdowns, default=None),
        "notSlowed": result.unslowed(TOLERANCE),
        "gpuUtilisation": result.gpu_utilisation,
        "memoryUtilisation": result.memory_utilisation,
        "outOfMemory": result.kills,
        "finished": len(result.finished),
        "neverFits": _count(result, Outcome.NEVER_FITS),
        "neverPlaced": _count(result, Outcome.NEVER_PLACED),
        "decisions": result.decisions,
        "rejected": result.rejected,
        "meanDecision": fmean(decisions) if decisions else None,
        "p99Decision": decisions[-(len(decisions) // 100) - 1] if decisions else None,
    }


def _count(result: Result, outcome: Outcome) -> int:
    return sum(job.outcome is outcome for job in result.jobs)


def report(batch: Batch, results: Mapping[str, Result]) -> RenderableType:
    """Draw the comparison, and say what did not go well."""
    parts: list[RenderableType] = [Text(batch.title, style="bold"), Text()]
    if results:
        parts.append(_table(batch, results))
        parts.append(Text())
        parts.append(
            Text(
                "Slowdown: run time against the time alone on the same GPU; not slowed: at most "
                f"{TOLERANCE:.0%}. Decision: time on this machine.",
                style="dim",
            )
        )
        parts += _trouble(batch, results)
    return Group(*parts)


def _table(batch: Batch, results: Mapping[str, Result]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("Policy", style="bold", vertical="bottom")
    for heading in (
        "Makespan",
        "Mean\nwait",
        "Slowdown\nmean",
        "\nlongest",
        "Not\nslowed",
        "Use of\nGPU",
        "\nmemory",
        "Out of\nmemory",
        "Decision\nmean",
        "\np99",
    ):
        table.add_column(heading, justify="right", no_wrap=True, vertical="bottom")
    done = [r for r in results.values() if len(r.finished) == len(batch.tasks)]
    best = min((result.makespan for result in done), default=None)
    for name, result in results.items():
        figures = figures_of(result)
        whole = len(result.finished) == len(batch.tasks)
        table.add_row(
            name,
            Text(
                seconds(result.makespan) + ("" if whole else " *"),
                style="bold green" if whole and result.makespan == best else "default",
            ),
            _maybe(figures["meanWait"], seconds),
            _maybe(figures["meanSlowdown"], times),
            _maybe(figures["maxSlowdown"], times),
            f"{figures['notSlowed']} of {len(batch.tasks)}",
            f"{result.gpu_utilisation:.1f} %",
            f"{result.memory_utilisation:.1f} %",
            str(result.kills) if result.kills else "-",
            _maybe(figures["meanDecision"], milliseconds),
            _maybe(figures["p99Decision"], milliseconds),
        )
    return table


def rank(name: str, result: Result) -> tuple[int, float, str]:
    """Order results: those that finished the most jobs first, then the shortest makespan."""
    return (-len(result.finished), result.makespan, name)


def _maybe(value: float | None, write: Any) -> str:
    return "-" if value is None else str(write(value))


def _trouble(batch: Batch, results: Mapping[str, Result]) -> list[RenderableType]:
    first = next(iter(results.values()))
    refused = {job.job for job in first.jobs if job.outcome is Outcome.NEVER_FITS}
    jobs = [task.job for task in batch.tasks if task.job.id in refused]
    lines = [f"* {job.name} can never start: {_why_never(job, batch)}" for job in jobs[:_SHOWN]]
    if len(jobs) > _SHOWN:
        lines.append(f"* nor can {len(jobs) - _SHOWN:,} more jobs; the JSON has all")
    for name, result in results.items():
        for outcome, said in (
            (Outcome.OUT_OF_MEMORY, "needs more memory than any GPU has"),
            (Outcome.NEVER_PLACED, "was left to wait for ever"),
        ):
            those = [job.job for job in result.jobs if job.outcome is outcome]
            if those:
                lines.append(f"* {name}: {said}: {_names(those)}")
        if result.rejected:
            lines.append(f"{name}: {result.rejected} placements broke a limit and were not made")
    return [Text(line, style="yellow") for line in lines]


def _why_never(job: Job, batch: Batch) -> str:
    """Say what a job asks for that there is not even where nobody else is."""
    gpus = [g for g in batch.place.gpus if not job.products or g.product in job.products]
    if not gpus:
        return f"there is no {' or '.join(job.products)}"
    largest = max(gpu.memory for gpu in gpus)
    if job.memory > largest:
        return f"it asks for {gib(job.memory)} GiB, and the largest GPU has {gib(largest)} GiB"
    most = max(Counter(gpu.node for gpu in gpus).values())
    if job.gpus > most:
        return f"it asks for {job.gpus} GPUs of one node, and none has more than {most}"
    return "no node with such a GPU has the room for it"


def _names(jobs: Sequence[str]) -> str:
    more = f" and {len(jobs) - _SHOWN} more" if len(jobs) > _SHOWN else ""
    return ", ".join(jobs[:_SHOWN]) + more


def as_json(
    batch: Batch, results: Mapping[str, Result], failures: Mapping[str, str]
) -> dict[str, Any]:
    """Return all there is to tell: under `result` what `simulator.results.load_result` reads."""
    return {
        "workload": batch.name,
        "jobs": len(batch.tasks),
        "sharing": str(batch.sharing),
        "speeds": dict(batch.speeds),
        "gpus": [{"id": g.id, "product": g.product, "memory": g.memory} for g in batch.place.gpus],
        "policies": [
            {"policy": name, **figures_of(result), "result": json.loads(dump_result(result))}
            for name, result in results.items()
        ],
        "failures": dict(failures),
    }
