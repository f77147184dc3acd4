"""The cost of a workload under each policy as a table and as data. Pure."""

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from partita.cli.number_format import seconds
from partita_research.cli.workload import Batch
from partita_research.cost import Bill, Prices, saving

__all__ = ["REFERENCE", "cost_data", "cost_report"]

REFERENCE = "sjf"
"""The policy that savings are relative to, as in the DqnGPU study."""
_GB = 10**9


def cost_report(batch: Batch, bills: Sequence[Bill], prices: Prices) -> RenderableType:
    """Draw the cost under each policy, in the order given."""
    instances, rentals = list(prices.instances), [one.name for one in prices.rentals]
    pairs = [cell for name in rentals for cell in (name.capitalize(), "saved")]
    table = _table("Policy", "Makespan", "Shares", *instances, *pairs)
    reference = _reference(bills)
    cheapest = {name: min(_priced(bills, name), default=None) for name in rentals}
    for one in bills:
        cells: list[RenderableType] = [f"${one.dollars[name]:.3f}" for name in instances]
        for name in rentals:
            amount = one.rentals[name]
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
    return Group(table, Text(), *lines)


def notes(batch: Batch, bills: Sequence[Bill], prices: Prices) -> list[str]:
    """Return the assumptions and the sources of the costs."""
    lines = [
        (
            "Below an instance's name: whole instances are rented for the makespan, one of their "
            "GPUs for each simulated GPU. Assumed: jobs run there as fast as on simulated GPUs."
        ),
        *(
            f"{one.name.capitalize()}: a policy that shares GPUs pays 1/{one.sharers} of "
            f"{one.shared.name} (${one.part:g} per hour), another pays {one.alone.name} "
            f"(${one.alone.dollars:g} per hour)."
            for one in prices.rentals
        ),
    ]
    if prices.rentals:
        lines.append(
            "Assumed, as in the study: other tenants of a shared instance do not slow jobs down."
        )
    if prices.rentals and _reference(bills) is not None:
        lines.append(f"Saved: relative to {REFERENCE}.")
    largest = max((task.job.memory for task in batch.tasks), default=0)
    small = [
        one.name
        for one in prices.instances.values()
        if one.gpu_memory is not None and one.gpu_memory * _GB < largest
    ]
    if small:
        lines.append(
            f"A job requests {largest / _GB:.1f} GB, more than a GPU of {', '.join(small)} has: it "
            "would not run there."
        )
    if not all(one.whole for one in bills):
        lines.append("* Not all jobs finished: the costs are those of fewer jobs.")
    sources = dict.fromkeys(one.source for one in prices.instances.values())
    lines.append(f"Prices: {'; '.join(sources)}.")
    return lines


def cost_data(batch: Batch, bills: Sequence[Bill], prices: Prices) -> dict[str, Any]:
    """Return the cost as data, in seconds, dollars and percent."""
    reference = _reference(bills)
    return {
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
                        else saving(amount, reference.rentals[name]),
                    }
                    for name, amount in one.rentals.items()
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
    return [one.rentals[name] for one in bills if one.whole]


def _saved(one: Bill, reference: Bill | None, name: str) -> str:
    if reference is None or one is reference or not one.whole:
        return "-"
    return f"{saving(one.rentals[name], reference.rentals[name]):.1f} %"
