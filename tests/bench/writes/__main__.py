"""`make bench-writes`: what each kind of write costs the API server, in two variants alternately.

etcd and kube-apiserver are real and processes of their own. In each round the same number of
requests is made of both variants, and the API server's CPU time is divided by it; what it uses
without requests is subtracted. Printed are the medians of the rounds, and their quartiles. The
ratio is that of the two variants in the same round.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from itertools import groupby
from pathlib import Path

from rich.console import Console
from rich.table import Table
from typing_extensions import override

from apiserver.build import assets
from bench.scale.client import client
from bench.scale.partitions import PlaneWithoutCollector
from bench.writes.builtins import builtins
from bench.writes.jobs import jobs
from bench.writes.ledger import ledgers
from bench.writes.measure import Cost, Costs, measure
from bench.writes.partitions import partitions
from bench.writes.variant import Comparison


def comparisons() -> Iterator[Comparison]:
    """Return all comparisons."""
    yield from ledgers()
    yield from jobs()
    yield from partitions()
    yield from builtins()


def main() -> None:
    """Measure and print."""
    every = list(comparisons())
    parser = argparse.ArgumentParser(
        prog="bench.writes",
        description=__doc__,
        epilog="comparisons:\n" + "\n".join(f"  {each.name}" for each in every),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "only", nargs="*", help="make only the comparisons whose name contains one of these texts"
    )
    parser.add_argument("--rounds", type=int, default=9, help="rounds of each (default: 9)")
    parser.add_argument(
        "--requests", type=int, default=200, help="requests of a variant a round (default: 200)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    given = parser.parse_args()
    chosen = [c for c in every if not given.only or any(text in c.name for text in given.only)]
    if not chosen:
        parser.error("no comparison has such a name")
    rows: list[tuple[Comparison, Costs]] = []
    for gate, group in groupby(chosen, key=lambda each: each.feature):
        with _Plane(gate) as plane:
            rows += asyncio.run(_measure(plane, list(group), given.rounds, given.requests))
    show(rows)
    if given.json:
        figures = {comparison.name: asdict(costs) for comparison, costs in rows}
        given.json.write_text(json.dumps(figures, indent=2) + "\n")


class _Plane(PlaneWithoutCollector):
    """With a feature gate."""

    def __init__(self, gate: str) -> None:
        super().__init__(assets())
        self._gate = gate

    @override
    def api_server_flags(self) -> list[str]:
        gates = [f"--feature-gates={self._gate}=true"] if self._gate else []
        return [*super().api_server_flags(), *gates]


async def _measure(
    plane: _Plane, chosen: list[Comparison], rounds: int, requests: int
) -> list[tuple[Comparison, Costs]]:
    rows = []
    _, apiserver, *_ = plane.pids
    async with client(plane.url, plane.token, plane.certificate) as api:
        for each in chosen:
            sys.stderr.write(f"{each.name}\n")
            costs = await measure(api, apiserver, each, rounds=rounds, requests=requests)
            sys.stderr.write(f"  {costs}\n")
            rows.append((each, costs))
    return rows


def show(rows: list[tuple[Comparison, Costs]]) -> None:
    """Print the costs."""
    table = Table("write: first / second variant", "first, ms", "second, ms", "second / first")
    for comparison, costs in rows:
        table.add_row(comparison.name, _text(costs.before), _text(costs.after), _text(costs.ratio))
    console = Console(width=110, highlight=False)
    console.print(table)
    load = os.getloadavg()[0]
    console.print(f"CPU time of the API server a request. {os.cpu_count()} cores, load {load:.1f}.")


def _text(cost: Cost) -> str:
    return f"{cost.median:.2f} ({cost.low:.2f} to {cost.high:.2f})"


if __name__ == "__main__":
    main()
