"""Result of the demo of workloads: a row for each Pod and job, and what it shows. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.console import Group, RenderableType
from rich.text import Text

from partita.cli.number_format import gib
from partita.models import SharedGPUJob
from partita.scheduling.reasons import Reason
from partita_testcluster.cli.demo_clock import DemoClock
from partita_testcluster.cli.demo_result import ResultRow, result_table, rows
from partita_testcluster.cli.workload_history import WorkloadHistory, WorkloadRecord

__all__ = ["workload_rows", "workload_summary"]


def workload_rows(
    history: WorkloadHistory, jobs: Sequence[SharedGPUJob], clock: DemoClock
) -> list[ResultRow]:
    """Return a row for each job and each Pod, by namespace."""
    job_rows = [replace(row, beside=tuple(history.beside(row.name))) for row in rows(jobs, clock)]
    pods = [_row(one, history, clock) for one in history.workloads.values()]
    return sorted([*job_rows, *pods], key=lambda row: row.namespace)


def workload_summary(
    table: Sequence[ResultRow],
    history: WorkloadHistory,
    clock: DemoClock,
    *,
    width: int,
    gpus: int,
    allocatable: int,
) -> RenderableType:
    """Draw the result.

    Parameters
    ----------
    width
        Width of the terminal in columns.
    allocatable
        Bytes of all GPUs together that can be allocated.
    """
    parts: list[RenderableType] = [result_table(table, width), Text()]
    parts += [Text(f"• {text}") for text in _lessons(history, clock, gpus, allocatable)]
    return Group(*parts)


def _row(one: WorkloadRecord, history: WorkloadHistory, clock: DemoClock) -> ResultRow:
    piece = history.slice_of(one.uid)
    result, style = one.outcome or "runs on", "dim" if one.outcome == "deleted" else "green"
    if piece is None:
        reason = next(reversed(one.waited), "")
        result, style = f"waited: {reason}" if reason else "waited", "yellow"
    return ResultRow(
        namespace=one.namespace,
        name=one.name,
        application=one.application,
        where=piece.server if piece else "",
        beside=tuple(history.beside(one.name)),
        waited=clock.seconds(one.seen, piece.since) if piece else None,
        ran=clock.seconds(piece.since, piece.until) if piece else None,
        attempts=0,
        result=result,
        style=style,
    )


def _lessons(
    history: WorkloadHistory, clock: DemoClock, gpus: int, allocatable: int
) -> Iterator[str]:
    yield (
        f"{history.most_together} Pods had a slice of {gpus} GPUs at one time, with "
        f"{gib(history.most_allocated)} of {gib(allocatable)} GiB allocated. With a whole GPU for "
        f"each Pod, {gpus} would have run."
    )
    yield (
        "A Pod gets a slice by naming a ResourceClaimTemplate. Deployment, StatefulSet and Job are "
        "the usual ones: their YAML names no scheduler, no webhook and no CRD of Partita."
    )
    records = history.workloads.values()
    services = [one for one in records if one.lasting and one.placed and not one.outcome]
    yield (
        f"The {len(services)} services kept their slices from start to end. Batch of all kinds "
        "waits in one queue for room beside them, and never ends a service."
    )
    limited = next((one for one in records if Reason.SERVICES_LIMIT in one.waited), None)
    if limited is not None:
        why = limited.waited[Reason.SERVICES_LIMIT].partition(": ")[0]
        yield (
            f"{limited.name} got no slice: {why}. This limit, spec.services.percent of the "
            "partition, keeps memory for batch."
        )
    deleted = [one for one in records if one.outcome == "deleted" and one.placed]
    pieces = [piece for one in deleted if (piece := history.slice_of(one.uid)) is not None]
    for piece in pieces[:1]:
        after = history.next_of(piece)
        went = f" {after.name} got memory on {after.server} next." if after else ""
        yield f"The slice of {piece.name} was free as soon as its Deployment was scaled down.{went}"
    yield f"Times are simulated: {clock.speed:g} simulated seconds take one second."
