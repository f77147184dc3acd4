"""The output of `partita explain` about a job."""

from collections.abc import Sequence
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from partita.cli.explain.tables import grid, joined, policy_table, slowdown_text
from partita.cli.number_format import duration, gib
from partita.console.ask_policies import PolicyAnswer, Slowdown
from partita.models import Attempt, Phase, SharedGPUJob
from partita.models.partition_status import GPUSummary
from partita.models.quantities import format_request, seconds_since

__all__ = ["job_text"]

_GPUS_TOLD = 3
"""Maximum number of GPUs named that take no jobs."""
_STYLES = {
    Phase.SUCCEEDED: "green",
    Phase.RUNNING: "green",
    Phase.ASSIGNED: "green",
    Phase.FAILED: "red",
    Phase.SUSPENDED: "dim",
}


def job_text(
    job: SharedGPUJob,
    answers: Sequence[PolicyAnswer],
    heading: str,
    gpus: Sequence[GPUSummary] = (),
    slowdown: Slowdown | None = None,
) -> RenderableType:
    """Return the state of a job, its policies' answers and its attempts.

    Parameters
    ----------
    heading
        Text above the policies' answers.
    gpus
        The GPUs of its partition, as far as they may be read.
    slowdown
        The prediction for its GPUs; None if it has none.
    """
    parts: list[RenderableType] = [_head(job), Text(), _facts(job, gpus, slowdown)]
    if answers:
        parts += [Text(), Text(heading, style="bold"), policy_table(answers, _why(job))]
    if job.status.attempts:
        parts += [Text(), Text("Attempts", style="bold"), _attempts(job.status.attempts)]
    return Group(*parts)


def _head(job: SharedGPUJob) -> Text:
    phase = job.status.phase or Phase.QUEUED
    position = job.status.queue_position
    state = {
        Phase.QUEUED: f"waits, number {position} in the queue" if position else "waits",
        Phase.ASSIGNED: "is assigned, its Pod starts",
        Phase.RUNNING: "runs",
        Phase.SUCCEEDED: "has succeeded",
        Phase.FAILED: "has failed",
        Phase.SUSPENDED: "is suspended",
    }[phase]
    text = Text(job.key, style="bold")
    text.append(f"  {state}", style=_STYLES.get(phase, "yellow"))
    return text.append(f"  partition {job.spec.partition}", style="dim")


def _facts(job: SharedGPUJob, gpus: Sequence[GPUSummary], slowdown: Slowdown | None) -> Table:
    spec, status = job.spec, job.status
    table = grid()
    if why := _why(job):
        table.add_row("Why", why)
    if (place := status.assignment) is not None and status.phase in {Phase.ASSIGNED, Phase.RUNNING}:
        where = f"{', '.join(place.servers)} on node {place.node}"
        limited = any(g.name in place.servers and g.enforcement == "Driver" for g in gpus)
        table.add_row(
            "On",
            f"{where}, {_amount(place.memory, place.memory_limit)}"
            f"{' (limited by the driver)' if limited else ''} and "
            f"{place.thread_percent} % of the threads",
        )
        table.add_row("Beside", ", ".join(place.beside) or "no other job when it started")
        if slowdown is not None:
            table.add_row("Slowdown", slowdown_text(slowdown))
    elif unable := [gpu for gpu in gpus if gpu.state != "Ready" and gpu.message]:
        said = "\n".join(f"{g.name} is {g.state}: {g.message}" for g in unable[:_GPUS_TOLD])
        more = len(unable) - _GPUS_TOLD
        table.add_row("GPUs", said + (f"\nand {more} more" if more > 0 else ""))
    threads = f", {spec.thread_percent} % of the threads" if spec.thread_percent else ""
    urgent = f", priority {spec.priority}" if spec.priority else ""
    if status.effective_priority is not None:
        urgent += f" (counts as {status.effective_priority}: the partition's maxPriority)"
    wanted = format_request(spec.gpu_memory, spec.slice, spec.gpus, spec.gpu_memory_limit)
    table.add_row("Asks for", wanted + threads + urgent)
    if status.peak_memory:
        table.add_row("Used", f"{gib(status.peak_memory)} GiB at most")
    created = job.metadata.creation_timestamp
    if created is not None:
        end = status.completion_time or datetime.now(UTC)
        table.add_row("Age", f"{duration(seconds_since(created, end))} since it was submitted")
    return table


def _amount(memory: int, limit: int | None) -> str:
    return f"{gib(memory)} GiB" + (f", up to {gib(limit)} GiB" if limit else "")


def _why(job: SharedGPUJob) -> str:
    return joined(job.status.reason, job.status.message)


def _overhead(attempt: Attempt) -> tuple[str, str, str]:
    """Return how long the attempt waited, took to start, and ran before it used the GPU."""
    return (
        _between(attempt.queued_time, attempt.booked_time),
        _between(attempt.booked_time, attempt.start_time),
        _between(attempt.start_time, attempt.first_use_time),
    )


def _between(start: datetime | None, end: datetime | None) -> str:
    return duration(seconds_since(start, end)) if start and end else "-"


def _attempts(attempts: Sequence[Attempt]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("#", "Outcome", "On", "Memory", "Used", "Waited", "Start", "To GPU", "Ran"):
        right = name not in {"Outcome", "On"}
        table.add_column(name, justify="right" if right else "left", no_wrap=True)
    table.add_column("Beside", overflow="fold")
    table.add_column("Message", overflow="fold", style="dim")
    for attempt in attempts:
        table.add_row(
            str(attempt.number),
            attempt.outcome.value if attempt.outcome else "running",
            ", ".join(attempt.servers),
            _amount(attempt.memory, attempt.memory_limit),
            f"{gib(attempt.peak_memory)} GiB" if attempt.peak_memory else "-",
            *_overhead(attempt),
            _between(attempt.start_time, attempt.end_time or datetime.now(UTC)),
            ", ".join(attempt.beside) or "-",
            attempt.message,
        )
    return table
