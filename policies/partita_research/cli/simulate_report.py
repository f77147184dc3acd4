"""The result of simulations as a table and as data. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from typing_extensions import TypedDict

from partita.cli.number_format import gib, milliseconds, seconds, times
from partita_policies.simulator.results import Reading
from partita_policies.types import Job
from partita_research.cli.messages import SHOWN, few
from partita_research.cli.simulate_statistics import TOLERANCE, Figures, figures_of, mean_figures
from partita_research.estimates import half_width
from partita_research.simulator import JobResult, Result, SimulatedAttempt, SimulatedOutcome
from partita_research.simulator.workloads import Workload

__all__ = ["Comparison", "Runs", "never_started", "rank", "report", "report_data"]

Runs = Mapping[str, Sequence[Result]]
"""Results by policy, one for each run."""


class SimulatedRecord(TypedDict):
    """What happened in a simulation. Times are seconds from its start, memory is in bytes."""

    jobs: tuple[JobResult, ...]
    """In the order of the workload."""
    attempts: tuple[SimulatedAttempt, ...]
    """In the order of their ends."""
    timeline: dict[str, tuple[Reading, ...]]
    """By GPU: from each of these times on, the share of the time with a kernel, and the memory."""
    seconds: tuple[float, ...]
    """Latency of each decision."""


class SimulatedRun(Figures):
    """A simulation of a policy."""

    seed: int
    result: SimulatedRecord


class ComparedPolicy(Figures):
    """The means of a policy over its runs."""

    policy: str
    makespanInterval: float  # noqa: N815 - a key of JSON
    """Half of the 95 % confidence interval of the makespan; 0 for a single run."""
    runs: list[SimulatedRun]


class ComparedGPU(TypedDict):
    """A GPU."""

    id: str
    product: str
    memory: int
    """Bytes that can be allocated."""


class Comparison(TypedDict):
    """The policies, the best first."""

    workload: str
    jobs: int
    sharing: str
    speeds: dict[str, float]
    """Speed of each product that is not as fast as the workload's own."""
    gpus: list[ComparedGPU]
    policies: list[ComparedPolicy]
    failures: dict[str, str]
    """Why a policy has no result, by its name."""
    seed: int
    noise: float


def report(workload: Workload, runs: Runs) -> RenderableType:
    """Draw the comparison and the problems of the simulations.

    Parameters
    ----------
    workload
        Workload of the first run.
    """
    parts: list[RenderableType] = [Text(workload.title, style="bold"), Text()]
    if runs:
        count = len(next(iter(runs.values())))
        mean = f"Means of {count} runs; ± is the mean's 95 % interval. " if count > 1 else ""
        said = (
            f"{mean}Slowdown: run time against the time alone on the same GPU; not slowed: at most "
            f"{TOLERANCE:.0%}. Decision: time on this machine."
        )
        parts += [_table(workload, runs), Text(), Text(said, style="dim")]
        parts += _trouble(workload, {name: results[0] for name, results in runs.items()})
    return Group(*parts)


def _table(workload: Workload, runs: Runs) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("Policy", style="bold", vertical="bottom")
    services = any(task.job.lasting for task in workload.tasks)
    jobs = sum(not task.job.lasting for task in workload.tasks)
    for heading in (
        "Makespan",
        "Mean\nwait",
        "Slowdown\nmean",
        "\nlongest",
        *(("\nservices",) if services else ()),
        "Not\nslowed",
        "Use of\nGPU",
        "\nmemory",
        "Out of\nmemory",
        "Decision\nmean",
        "\np99",
    ):
        table.add_column(heading, justify="right", no_wrap=True, vertical="bottom")
    best = next(iter(runs))
    for name, results in runs.items():
        figures = mean_figures(results)
        spans = [result.makespan for result in results]
        width = f" ±{half_width(spans):,.0f}" if len(spans) > 1 else ""
        whole = all(len(result.finished) == jobs for result in results)
        table.add_row(
            name,
            Text(
                f"{seconds(fmean(spans))}{width}{'' if whole else ' *'}",
                style="bold green" if whole and name == best else "default",
            ),
            _maybe(figures["meanWait"], seconds),
            _maybe(figures["meanSlowdown"], times),
            _maybe(figures["maxSlowdown"], times),
            *((_maybe(figures["meanServiceSlowdown"], times),) if services else ()),
            f"{_maybe(figures['notSlowed'], _number)} of {jobs:,}",
            _maybe(figures["gpuUtilisation"], "{:.1f} %".format),
            _maybe(figures["memoryUtilisation"], "{:.1f} %".format),
            _maybe(figures["outOfMemory"] or None, _number),
            _maybe(figures["meanDecision"], milliseconds),
            _maybe(figures["p99Decision"], milliseconds),
        )
    return table


def rank(name: str, results: Sequence[Result]) -> tuple[int, float, str]:
    """Return the sort key of a policy: most finished jobs first, then the shortest makespan."""
    finished = sum(len(result.finished) for result in results)
    return (-finished, fmean(result.makespan for result in results), name)


def never_started(runs: Runs) -> str:
    """Say which policies left jobs that never started; nothing if none did."""
    counts = {
        name: sum(job.start is None for result in results for job in result.jobs)
        for name, results in runs.items()
    }
    left = ", ".join(f"{count} under {name}" for name, count in counts.items() if count)
    return f"jobs never started: {left}" if left else ""


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def _maybe(value: float | None, write: Any) -> str:
    return "-" if value is None else str(write(value))


def _trouble(workload: Workload, results: Mapping[str, Result]) -> list[RenderableType]:
    first = next(iter(results.values()))
    refused = {job.job for job in first.jobs if job.outcome is SimulatedOutcome.NEVER_FITS}
    jobs = [task.job for task in workload.tasks if task.job.id in refused]
    lines = [f"* {job.name} can never start: {_why_never(job, workload)}" for job in jobs[:SHOWN]]
    if len(jobs) > SHOWN:
        lines.append(f"* nor can {len(jobs) - SHOWN:,} more jobs; -o json lists all")
    for name, result in results.items():
        for outcome, said in (
            (SimulatedOutcome.OUT_OF_MEMORY, "needs more memory than any GPU has"),
            (SimulatedOutcome.NEVER_PLACED, "was left to wait for ever"),
        ):
            those = [job.job for job in result.jobs if job.outcome is outcome]
            if those:
                lines.append(f"* {name}: {said}: {few(those)}")
        if result.reclaims:
            lines.append(
                f"{name}: memory above a job's guarantee was reclaimed {result.reclaims} times"
            )
        if result.rejected:
            lines.append(f"{name}: {result.rejected} placements broke a limit and were not made")
    return [Text(line, style="yellow") for line in lines]


def _why_never(job: Job, workload: Workload) -> str:
    """Return the request of a job that even empty GPUs cannot fulfil."""
    gpus = [g for g in workload.gpus if not job.products or g.product in job.products]
    if not gpus:
        return f"there is no {' or '.join(job.products)}"
    largest = max(gpu.memory for gpu in gpus)
    if job.memory > largest:
        return f"it asks for {gib(job.memory)} GiB, and the largest GPU has {gib(largest)} GiB"
    most = max(Counter(gpu.node for gpu in gpus).values())
    if job.gpus > most:
        return f"it asks for {job.gpus} GPUs of one node, and none has more than {most}"
    return "no node with such a GPU has the room for it"


def report_data(
    workloads: Mapping[int, Workload], runs: Runs, failures: Mapping[str, str], noise: float
) -> Comparison:
    """Return the whole result as data.

    Parameters
    ----------
    workloads
        Workloads by seed, in the order of the runs.
    """
    seed, workload = next(iter(workloads.items()))
    gpus = workload.gpus
    return {
        "workload": workload.name,
        "jobs": len(workload.tasks),
        "sharing": str(workload.sharing),
        "speeds": dict(workload.speeds),
        "gpus": [{"id": g.id, "product": g.product, "memory": g.memory} for g in gpus],
        "policies": [
            {
                "policy": name,
                **mean_figures(results),
                "makespanInterval": half_width([result.makespan for result in results]),
                "runs": list(map(_run, workloads, results)),
            }
            for name, results in runs.items()
        ],
        "failures": dict(failures),
        "seed": seed,
        "noise": noise,
    }


def _run(seed: int, result: Result) -> SimulatedRun:
    record: SimulatedRecord = {
        "jobs": result.jobs,
        "attempts": result.attempts,
        "timeline": result.timeline,
        "seconds": result.seconds,
    }
    return {"seed": seed, **figures_of(result), "result": record}
