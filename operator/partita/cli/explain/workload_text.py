"""The output of `partita explain` about workloads."""

from collections.abc import Sequence
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from partita.cli.explain.tables import grid, joined, policy_table, slowdown_text
from partita.cli.number_format import duration, gib
from partita.console.ask_policies import PolicyAnswer
from partita.console.workload_explanation import WorkloadExplanation
from partita.console.workload_settings import Setting
from partita.models.quantities import seconds_since
from partita.reconcile.workload_view import WorkloadView

__all__ = ["workloads_text"]

_HEADINGS = {
    "Queued": "What each policy would do now",
    "Gated": "What each policy would do now if its Pod were admitted",
}
_RUNNING = "What each policy would do now if it were still waiting"
_STATES = {
    "Gated": "is not admitted yet",
    "Queued": "waits",
    "Assigned": "has a slice, its Pod starts",
    "Running": "runs",
    "Ending": "has ended",
}
_STYLES = {"Running": "green", "Assigned": "green", "Gated": "dim", "Ending": "dim"}


def workloads_text(
    found: Sequence[tuple[WorkloadExplanation, Sequence[PolicyAnswer]]],
    others: Sequence[WorkloadView] = (),
) -> RenderableType:
    """Return what is known about workloads, and the policies' answers about each.

    Parameters
    ----------
    others
        Further workloads of the same controller, of which only the state is printed.
    """
    parts: list[RenderableType] = []
    for each, answers in found:
        if parts:
            parts.append(Text())
        parts += _workload(each, answers)
    parts += [_head(view) for view in others]
    return Group(*parts)


def _workload(found: WorkloadExplanation, answers: Sequence[PolicyAnswer]) -> list[RenderableType]:
    view = found.workload
    parts: list[RenderableType] = [_head(view), Text(), _facts(found)]
    if found.settings:
        parts += [Text(), Text("What it asks for", style="bold"), _settings(found.settings)]
    if answers:
        heading = _HEADINGS.get(view.phase, _RUNNING)
        why = joined(view.reason, view.message)
        parts += [Text(), Text(heading, style="bold"), policy_table(answers, why)]
    return parts


def _head(view: WorkloadView) -> Text:
    text = Text(view.key, style="bold")
    state = _STATES[view.phase]
    if view.position is not None:
        state += f", number {view.position} in the queue"
    text.append(f"  {state}", style=_STYLES.get(view.phase, "yellow"))
    kind = "service of " if view.lasting else ""
    return text.append(f"  {kind}{view.application or 'no Pod'}, partition {view.partition}", "dim")


def _facts(found: WorkloadExplanation) -> Table:
    view, now = found.workload, datetime.now(UTC)
    table = grid()
    if why := joined(view.reason, view.message):
        table.add_row("Why", why)
    if found.advice:
        table.add_row("To change", found.advice)
    if (place := view.place) is not None:
        limit = f", up to {gib(view.memory_limit)} GiB" if view.memory_limit else ""
        by = " (limited by the driver)" if found.enforcement == "Driver" else ""
        table.add_row(
            "On",
            f"{place.server} on node {place.node}, {gib(view.memory or 0)} GiB{limit}{by} and "
            f"{view.threads} % of the threads",
        )
        table.add_row("Beside", ", ".join(found.beside) or "nothing else")
        if found.slowdown is not None and found.beside:
            table.add_row("Slowdown", slowdown_text(found.slowdown))
        if place.used is not None:
            table.add_row("Uses", f"{gib(place.used)} GiB now, {gib(place.peak or 0)} GiB at most")
        if place.idle_since is not None:
            since = duration(seconds_since(place.idle_since, now))
            table.add_row("Idle", f"no kernel has run for {since}")
    table.add_row("Claim", view.claim)
    if view.created is not None:
        waited = view.place.since if view.place is not None and view.place.since else now
        table.add_row("Waited", duration(seconds_since(view.created, waited)))
    return table


def _settings(settings: Sequence[Setting]) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold", style="dim")
    for one in settings:
        table.add_row(one.name, one.value, one.source)
    return table
