"""The output of `partita explain`."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from partita.claims.workload_view import WorkloadPlace, WorkloadView
from partita.cli.explain.planned import Planned
from partita.cli.explain.tables import attempts_table, grid, policy_table
from partita.cli.number_format import duration, starts_in
from partita.console.explanation import Explanation
from partita.console.framework_budgets import FrameworkBudget
from partita.models import EstimatedStart, Framework, SharedGPUJob
from partita.models.quantities import format_request, gib, seconds_since
from partita.pods.framework_memory import FrameworkSetting

__all__ = ["explanation_text", "planned_text"]

_GPUS_TOLD = 3
"""Maximum number of GPUs named that take no jobs."""
_STATES = {
    "Gated": "is not admitted yet",
    "Suspended": "is suspended",
    "Queued": "waits",
    "Running": "runs",
    "Ending": "has ended",
    "Succeeded": "has succeeded",
    "Failed": "has failed",
}
_STYLES = dict.fromkeys(("Assigned", "Running", "Succeeded"), "green") | {
    "Failed": "red",
    **dict.fromkeys(("Gated", "Suspended", "Ending"), "dim"),
}


def explanation_text(
    found: Iterable[Explanation], others: Iterable[WorkloadView] = ()
) -> RenderableType:
    """Return what is known about jobs or workloads, and the policies' answers about each.

    Parameters
    ----------
    others
        Further workloads of the same controller, of which only the state is printed.
    """
    parts: list[RenderableType] = []
    for each in found:
        parts += [Text(), *_explanation(each)] if parts else _explanation(each)
    return Group(*parts, *map(_head, others))


def planned_text(found: Sequence[Planned]) -> RenderableType:
    """Return the jobs and Pods with what to set."""
    parts: list[RenderableType] = []
    for one in found:
        head = Text(f"{one.kind}/{one.name}", style="bold")
        parts += [head.append(f"  partition {one.partition}", style="dim")]
        parts += [Text(one.note)] if one.note else _framework_tables(one.frameworks)
    return Group(*parts)


def _explanation(found: Explanation) -> list[RenderableType]:
    view, job = found.workload, found.job
    parts: list[RenderableType] = [_head(view), Text(), _facts(found)]

    def add(title: str, table: Table) -> None:
        parts.extend([Text(), Text(title, style="bold"), table])

    if found.settings:
        rows = ((one.name, one.value, one.source) for one in found.settings)
        add("What it asks for", grid(rows))
    parts += _framework_tables(found.frameworks, found.named_frameworks)
    if found.policies:
        add(_heading(view, job), policy_table(found.policies, view.why))
    if found.attempts:
        peak = view.place.peak if view.place is not None else None
        add("Attempts", attempts_table(found.attempts, peak))
    return parts


def _framework_tables(
    budgets: Iterable[FrameworkBudget], names: Sequence[str] | None = None
) -> list[RenderableType]:
    """Return what to set in frameworks, by GPUs that need the same.

    Parameters
    ----------
    names
        The frameworks; None for all.
    """
    parts: list[RenderableType] = []
    for budget in budgets:
        chosen = [one for one in budget.settings if names is None or one.framework in names]
        if not chosen:
            continue
        more = len(budget.gpus) - _GPUS_TOLD
        gpus = ", ".join(budget.gpus[:_GPUS_TOLD]) + (f" and {more} more" if more > 0 else "")
        rows = ((one.framework, one.setting, _setter(one)) for one in chosen)
        heading = Text(f"What to set in a framework on {gpus}", style="bold")
        parts += [Text(), heading, grid(rows)]
    return parts


def _setter(setting: FrameworkSetting) -> str:
    """Return with which value of the job's or Pod's framework Partita sets it."""
    framework = setting.partita
    return f"set by framework: {framework}" if framework is not Framework.NONE else ""


def _heading(view: WorkloadView, job: SharedGPUJob | None) -> str:
    """Return the heading above the policies' answers."""
    now = "What each policy would do now"
    if job is not None and job.spec.suspend:
        return f"{now} if the job were not suspended"
    match view.phase:
        case "Queued":
            return now
        case "Gated":
            return f"{now} if its Pod were admitted"
        case _:
            return f"{now} if {'the job' if job is not None else 'it'} were still waiting"


def _head(view: WorkloadView) -> Text:
    text = Text(view.key, style="bold")
    given = "is assigned" if view.is_job else "has a slice"
    state = _STATES.get(view.phase, f"{given}, its Pod starts")
    if view.position is not None and view.waits:
        state += f", number {view.position} in the queue"
    text.append(f"  {state}", style=_STYLES.get(view.phase, "yellow"))
    kind = "service of " if view.lasting else ""
    of = "" if view.is_job else f"{kind}{view.application or 'no Pod'}, "
    return text.append(f"  {of}partition {view.partition}", style="dim")


def _facts(found: Explanation) -> Table:
    view = found.workload
    rows = [("Why", view.why), ("To change", found.advice)]
    if view.expected is not None:
        rows.append(("Starts", _starts(view.expected)))
    if view.place is not None and not view.ended:
        rows += _placed(found, view.place)
    elif unable := [gpu for gpu in found.gpus if gpu.state != "Ready" and gpu.message]:
        said = "\n".join(f"{g.name} is {g.state}: {g.message}" for g in unable[:_GPUS_TOLD])
        more = len(unable) - _GPUS_TOLD
        rows.append(("GPUs", said + (f"\nand {more} more" if more > 0 else "")))
    if (has := found.namespace_share) is not None and has.share and not view.ended:
        what = {"memory": "GPU memory", "clients": "MPS clients"}.get(has.resource, has.resource)
        rows.append(("Namespace", f"has {100 * has.share:.0f} % of the partition's {what}"))
    rows += _of_job(found.job, view) if found.job is not None else _of_claim(view)
    rows += [("Needs", found.needs)]
    if found.frameworks and not found.named_frameworks:
        known = ", ".join(one.framework for one in found.frameworks[0].settings)
        rows.append(("Framework", f"none is named; -o json has what to set in {known}"))
    if view.ended:
        rows.append(("Slowdown", found.slowed))
    return grid(row for row in rows if row[1])


def _starts(expected: EstimatedStart) -> str:
    if expected.earliest is None:
        return f"nothing can be said: {expected.reason}"
    when = starts_in(expected.earliest, expected.latest, datetime.now(UTC))
    if expected.latest is None:
        return f"{when}: {expected.reason}"
    return f"{when}, with {100 * (expected.probability or 0):.0f} % probability"


def _placed(found: Explanation, place: WorkloadPlace) -> Iterable[tuple[str, str]]:
    view = found.workload
    amount = format_request(view.memory, None, 1, view.memory_limit)
    by = " (limited by the driver)" if found.enforcement == "Driver" else ""
    threads = f"{view.threads} % of the threads"
    yield "On", f"{place.server} on node {place.node}, {amount}{by} and {threads}"
    if found.beside is not None:
        yield "Beside", ", ".join(found.beside) or "nothing else"
    elif found.job is not None and (first := found.job.status.assignment) is not None:
        yield "Beside", f"{', '.join(first.beside) or 'nothing else'} when it started"
    yield "Slowdown", found.slowed
    if place.used is not None:
        yield "Uses", f"{gib(place.used)} now, {gib(place.peak or 0)} at most"
    if place.idle_since is not None:
        since = duration(seconds_since(place.idle_since, datetime.now(UTC)))
        yield "Idle", f"no kernel has run for {since}"


def _of_job(job: SharedGPUJob, view: WorkloadView) -> Iterable[tuple[str, str]]:
    spec, status = job.spec, job.status
    if spec.gpu_memory or spec.slice:
        wanted = format_request(spec.gpu_memory, spec.slice, spec.gpus, spec.gpu_memory_limit)
    elif view.waits:
        learnt = f", learnt from application {spec.application}" if view.memory else ""
        wanted = f"{view.asks}{learnt}"
    else:
        wanted = "no amount: what its application has used, or else a GPU alone"
    if spec.thread_percent:
        wanted += f", {spec.thread_percent} % of the threads"
    if spec.priority:
        wanted += f", priority {spec.priority}"
    if status.effective_priority is not None:
        wanted += f" (counts as {status.effective_priority}: the partition's maxPriority)"
    yield "Asks for", wanted
    if status.peak_memory:
        yield "Used", f"{gib(status.peak_memory)} at most"
    created, now = job.metadata.creation_timestamp, datetime.now(UTC)
    if created is not None and status.completion_time is not None:
        took = duration(seconds_since(created, status.completion_time))
        ended = duration(seconds_since(status.completion_time, now))
        yield "Ended", f"{ended} ago, {took} after it was submitted"
    elif created is not None:
        yield "Age", f"{duration(seconds_since(created, now))} since it was submitted"


def _of_claim(view: WorkloadView) -> Iterable[tuple[str, str]]:
    yield "Claim", view.claim
    if view.created is not None and view.place is not None:
        yield "Waited", duration(seconds_since(view.created, view.place.since or view.created))
    elif view.created is not None:
        yield "Waits", f"for {duration(seconds_since(view.created, datetime.now(UTC)))}"
