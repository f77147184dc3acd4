"""Costs as tables and as JSON. Pure."""

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from partita.cli.number_format import seconds
from partita_research.cli.workload import Batch
from partita_research.cost import Bill, Prices, saving, study_costs, study_notes

__all__ = ["REFERENCE", "as_json", "report", "study_json", "study_report"]

REFERENCE = "sjf"
"""The policy against which savings are told, where it is among those tried: the study's."""
_GB = 10**9


def study_report() -> RenderableType:
    """Draw the study's cost table, as published and as it follows from its own figures."""
    costs = study_costs()
    table = _table("", "Alone", "A part", "Published", "Recomputed", "By figure 16")
    for cost in costs:
        one = cost.reckoning
        table.add_row(
            one.name,
            f"{one.alone.name} ${one.alone.dollars:g}",
            f"1/{one.sharers} {one.shared.name} ${one.part:g}",
            f"{cost.published:.2f} %",
            f"{cost.recomputed:.2f} %",
            f"{cost.from_totals:.2f} %",
        )
    title = "The DqnGPU study's savings on random: DqnGPU on a part against SJF alone"
    notes = [Text(note, style="dim") for note in study_notes()]
    return Group(Text(title, style="bold"), Text(), table, Text(), *notes)


def study_json() -> dict[str, Any]:
    """Return the study's cost table; seconds, dollars an hour, percent."""
    return {
        "savings": [
            {
                "name": cost.reckoning.name,
                "alone": cost.reckoning.alone.name,
                "aloneDollars": cost.reckoning.alone.dollars,
                "shared": cost.reckoning.shared.name,
                "partDollars": cost.reckoning.part,
                "published": cost.published,
                "impliedSeconds": cost.implied,
                "recomputed": cost.recomputed,
                "fromTotals": cost.from_totals,
                "where": cost.where,
            }
            for cost in study_costs()
        ],
        "notes": list(study_notes()),
    }


def report(batch: Batch, bills: Sequence[Bill], prices: Prices) -> RenderableType:
    """Draw what a workload costs under each policy."""
    instances, reckonings = list(prices.instances), [one.name for one in prices.reckonings]
    pairs = [cell for name in reckonings for cell in (name.capitalize(), "saved")]
    table = _table("Policy", "Makespan", "Shares", *instances, *pairs)
    reference = _reference(bills)
    cheapest = {name: min(_priced(bills, name), default=None) for name in reckonings}
    for one in bills:
        cells: list[RenderableType] = [f"${one.dollars[name]:.3f}" for name in instances]
        for name in reckonings:
            amount = one.reckoned[name]
            best = one.whole and amount == cheapest[name]
            cells.append(Text(f"${amount:.3f}", style="bold green" if best else "default"))
            cells.append(_saved(one, reference, name))
        table.add_row(
            one.policy,
            seconds(one.seconds) + ("" if one.whole else " *"),
            "yes" if one.shares else "no",
            *cells,
        )
    lines = [Text(line, style="dim") for line in notes(batch, bills, prices)]
    return Group(Text(batch.title, style="bold"), Text(), table, Text(), *lines)


def notes(batch: Batch, bills: Sequence[Bill], prices: Prices) -> list[str]:
    """Say what the figures rest on."""
    lines = [
        (
            "Under an instance's name: all of it is paid, one GPU of it for each GPU simulated, "
            "for the makespan. Assumed: jobs run as fast there as on the GPUs simulated."
        ),
        *(
            f"{one.name.capitalize()}: who shares pays 1/{one.sharers} of {one.shared.name} "
            f"(${one.part:g} an hour), who does not pays {one.alone.name} "
            f"(${one.alone.dollars:g} an hour)."
            for one in prices.reckonings
        ),
    ]
    if prices.reckonings:
        lines.append(
            "Assumed, as in the study: the others who pay a part of the instance slow nobody down."
        )
    if prices.reckonings and _reference(bills) is not None:
        lines.append(f"Saved: against {REFERENCE}.")
    largest = max((task.job.memory for task in batch.tasks), default=0)
    small = [
        one.name
        for one in prices.instances.values()
        if one.gpu_memory is not None and one.gpu_memory * _GB < largest
    ]
    if small:
        lines.append(
            f"A job allocates {largest / _GB:.1f} GB, more than a GPU of {', '.join(small)} has: "
            "there it would not run."
        )
    if not all(one.whole for one in bills):
        lines.append("* Not all jobs finished: the figures are those of fewer jobs.")
    sources = dict.fromkeys(one.source for one in prices.instances.values())
    lines.append(f"Prices: {'; '.join(sources)}.")
    return lines


def as_json(batch: Batch, bills: Sequence[Bill], prices: Prices) -> dict[str, Any]:
    """Return what a workload costs; seconds, dollars, percent."""
    reference = _reference(bills)
    return {
        "workload": batch.name,
        "jobs": len(batch.tasks),
        "gpus": len(batch.place.gpus),
        "reference": None if reference is None else REFERENCE,
        "policies": [
            {
                "policy": one.policy,
                "makespan": one.seconds,
                "allFinished": one.whole,
                "shares": one.shares,
                "instances": dict(one.dollars),
                "sharing": {
                    name: {
                        "dollars": amount,
                        "saved": None
                        if reference is None
                        else saving(amount, reference.reckoned[name]),
                    }
                    for name, amount in one.reckoned.items()
                },
            }
            for one in bills
        ],
        "prices": {one.name: one.dollars for one in prices.instances.values()},
        "notes": notes(batch, bills, prices),
    }


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(first, style="bold")
    for heading in others:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _reference(bills: Sequence[Bill]) -> Bill | None:
    return next((one for one in bills if one.policy == REFERENCE and one.whole), None)


def _priced(bills: Sequence[Bill], name: str) -> list[float]:
    return [one.reckoned[name] for one in bills if one.whole]


def _saved(one: Bill, reference: Bill | None, name: str) -> str:
    if reference is None or one is reference or not one.whole:
        return "-"
    return f"{saving(one.reckoned[name], reference.reckoned[name]):.1f} %"
