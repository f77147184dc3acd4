"""Result of the demo: a row for each job, and the makespan compared with one job per GPU."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from partita.cli.number_format import duration, gib
from partita.models import Attempt, Outcome, Phase, SharedGPUJob
from partita.models.partition_status import ShadowStatus
from partita_testcluster.cli.demo_clock import DemoClock
from partita_testcluster.cli.demo_events import finished_at

__all__ = [
    "DemoReport",
    "DemoRow",
    "DemoRows",
    "ResultRow",
    "makespan",
    "result_table",
    "rows",
    "summary",
]

_APPLICATION_FROM = 100
"""Minimum terminal width at which the applications are displayed."""


@dataclass(frozen=True, slots=True)
class DemoRow:
    """What became of a job or Pod; times in simulated seconds."""

    namespace: str
    name: str
    application: str
    where: str
    """The GPUServers, separated by commas; empty if it has not started."""
    beside: tuple[str, ...]
    """What was on the same GPU at any time."""
    waited: float | None
    ran: float | None
    attempts: int
    """Starts of a job; 0 for a Pod of another controller."""
    result: str


DemoRows = list[DemoRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultRow(DemoRow):
    """The result of one job or Pod, as it is drawn."""

    style: str
    memory: tuple[int, ...] = ()
    """Bytes of each attempt."""
    ran_out: bool = False
    """Whether an attempt ran out of memory."""


@dataclass(frozen=True, slots=True)
class DemoReport:
    """The result of a demo."""

    table: Sequence[ResultRow]
    picture: RenderableType
    problems: list[str]
    """What should have been otherwise."""

    @property
    def data(self) -> DemoRows:
        """The table for scripts."""
        names = [field.name for field in fields(DemoRow)]
        return [DemoRow(*(getattr(row, name) for name in names)) for row in self.table]


def rows(jobs: Sequence[SharedGPUJob], clock: DemoClock) -> list[ResultRow]:
    """Return a row for each job, by namespace and start."""

    def place(job: SharedGPUJob) -> tuple[str, bool, float, str]:
        allocated = job.status.attempts[0].booked_time if job.status.attempts else None
        return (
            job.metadata.namespace,
            allocated is None,
            allocated.timestamp() if allocated else 0.0,
            job.metadata.name,
        )

    return [_row(job, jobs, clock) for job in sorted(jobs, key=place)]


def _row(job: SharedGPUJob, jobs: Sequence[SharedGPUJob], clock: DemoClock) -> ResultRow:
    attempts = job.status.attempts
    last = attempts[-1] if attempts else None
    result, style = _result(job)
    return ResultRow(
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        application=job.spec.application or "",
        where=", ".join(dict.fromkeys(s for a in attempts for s in a.servers)),
        beside=tuple(_beside(job, jobs)),
        waited=_waited(attempts, clock) if last else None,
        ran=clock.seconds(last.booked_time, finished_at(job)) if last else None,
        attempts=len(attempts),
        result=result,
        style=style,
        memory=tuple(attempt.memory for attempt in attempts),
        ran_out=any(attempt.outcome is Outcome.OUT_OF_MEMORY for attempt in attempts),
    )


def _waited(attempts: Sequence[Attempt], clock: DemoClock) -> float:
    """Return how long a job waited in all, before its first attempt and between attempts."""
    first, *again = attempts
    times = [clock.seconds(one.queued_time, one.booked_time) for one in again]
    return clock.seconds(clock.began, first.booked_time) + sum(times)


def _result(job: SharedGPUJob) -> tuple[str, str]:
    status = job.status
    match status.phase:
        case Phase.SUCCEEDED:
            return "succeeded", "green"
        case Phase.FAILED:
            return f"failed: {status.reason}", "red"
        case Phase.SUSPENDED:
            return "suspended", "dim"
        case Phase.QUEUED:
            return f"waits: {status.reason}", "yellow"
        case _:
            return (status.phase.value.lower() if status.phase else "new"), "yellow"


def _beside(job: SharedGPUJob, jobs: Sequence[SharedGPUJob]) -> list[str]:
    """Return the names of the jobs that were co-located with a job at any time."""
    return [
        other.metadata.name
        for other in jobs
        if other is not job
        and any(
            _together(mine, finished_at(job), its, finished_at(other))
            for mine in job.status.attempts
            for its in other.status.attempts
        )
    ]


def _together(
    one: Attempt, one_end: datetime | None, other: Attempt, other_end: datetime | None
) -> bool:
    if not set(one.servers) & set(other.servers) or not one.booked_time or not other.booked_time:
        return False
    # The end of a Pod is in whole seconds; for the last attempt, the exact end of the job is known.
    ends = [_end(one, one_end), _end(other, other_end)]
    if ends[1] is not None and one.booked_time >= ends[1]:
        return False
    return ends[0] is None or other.booked_time < ends[0]


def _end(attempt: Attempt, job_end: datetime | None) -> datetime | None:
    return job_end if attempt.outcome is Outcome.SUCCEEDED and job_end else attempt.end_time


def makespan(jobs: Sequence[SharedGPUJob], clock: DemoClock) -> float:
    """Return the simulated seconds from the first submission to the end of the last job."""
    ends = [end for job in jobs if (end := finished_at(job)) is not None]
    return max((clock.seconds(clock.began, end) for end in ends), default=0.0)


def summary(
    table: Sequence[ResultRow],
    *,
    width: int,
    taken: float,
    alone: float,
    gpus: int,
    speed: float,
    shadows: Sequence[ShadowStatus],
) -> RenderableType:
    """Draw the result.

    Parameters
    ----------
    width
        Width of the terminal in columns.
    taken, alone
        Actual makespan, and makespan with one job per GPU.
    """
    parts: list[RenderableType] = [result_table(table, width), Text()]
    share = f", {alone / taken:.1f} times as long" if taken else ""
    parts.append(
        Text.assemble(
            ("Makespan ", ""),
            (duration(taken), "bold green"),
            (f" shared; {duration(alone)} with one job per GPU{share}.", ""),
        )
    )
    resized = [row.name for row in table if row.ran_out]
    exempt = f" Alone on a GPU, {', '.join(resized)} does not run out of memory." if resized else ""
    parts.append(
        Text(
            "The second time is calculated: the same jobs in order of submission, one at a time on "
            f"each of {gpus} GPUs, at full speed and without a pause between two.{exempt} "
            f"Times are simulated: {speed:g} simulated seconds take one second.",
            style="dim",
        )
    )
    parts += [
        Text(
            f"Shadow policy {shadow.name} would have decided the same in {shadow.agreed} of "
            f"{shadow.cycles} cycles.",
            style="dim",
        )
        for shadow in shadows
    ]
    return Group(*parts)


def result_table(rows: Sequence[ResultRow], width: int) -> Table:
    """Draw a row for each job, grouped by namespace."""
    wide = width >= _APPLICATION_FROM
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("Job", no_wrap=True)
    if wide:
        table.add_column("Application", no_wrap=True)
    table.add_column("Ran on", no_wrap=True)
    table.add_column("Beside", style="dim", ratio=1)
    table.add_column("Waited", justify="right", no_wrap=True)
    table.add_column("Ran", justify="right", no_wrap=True)
    table.add_column("Result", max_width=max(20, width // 4))
    namespace = ""
    for row in rows:
        if row.namespace != namespace:
            namespace = row.namespace
            table.add_row(Text(namespace, style="bold"))
        cells: list[RenderableType] = [f"  {row.name}"]
        if wide:
            cells.append(row.application)
        cells += [
            row.where or "-",
            ", ".join(row.beside) or "-",
            "-" if row.waited is None else duration(row.waited),
            "-" if row.ran is None else duration(row.ran),
            Text(row.result, style=row.style).append(_retries(row.memory), style="default"),
        ]
        table.add_row(*cells)
    return table


def _retries(memory: Sequence[int]) -> str:
    """Describe the attempts before the last."""
    if len(memory) < 2:
        return ""
    amounts = [gib(amount) for amount in memory]
    resized = f", resized {' → '.join(amounts)} GiB" if len(set(amounts)) > 1 else ""
    return f" in attempt {len(memory)}{resized}"
