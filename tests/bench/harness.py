"""What all benchmarks share: their options, meters of processes, and figures beside targets."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from rich.console import Console
from rich.table import Table

__all__ = [
    "Figure",
    "Usage",
    "add_number",
    "machine",
    "parser",
    "quantile",
    "requests_served",
    "resident",
    "show",
    "tell",
    "usage",
]

_TICK: int = os.sysconf("SC_CLK_TCK")


def parser(name: str, description: str | None, examples: str) -> argparse.ArgumentParser:
    """Return the parser of a benchmark's options, with examples at the end of its help."""
    return argparse.ArgumentParser(
        prog=f"make bench-{name}",
        usage=f'make bench-{name} [ARGS="OPTIONS"]',
        description=description,
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def add_number(to: argparse.ArgumentParser, option: str, default: int, text: str) -> None:
    """Add an option that takes a whole number."""
    text += " (default: %(default)s)"
    to.add_argument(option, type=int, default=default, metavar="N", help=text)


def tell(text: str) -> None:
    """Say how far it is: beside the figures, which alone go to stdout."""
    sys.stderr.write(f"{text}\n")


def machine() -> str:
    """Return what figures of another machine differ by."""
    load = os.getloadavg()[0]
    return f"{os.cpu_count()} cores, Python {platform.python_version()}, load {load:.1f}"


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of all does not exceed; 0 of none."""
    if not values:
        return 0.0
    return sorted(values)[max(ceil(share * len(values)), 1) - 1]


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process has used."""

    cpu: float
    """Seconds of processor time, user and system."""
    peak: float
    """Most resident memory so far, MB."""

    def since(self, before: Usage) -> Usage:
        """Return what was used since then; the peak stays that of its whole life."""
        return Usage(self.cpu - before.cpu, self.peak)


def usage(pid: int, *, children: bool = False) -> Usage:
    """Read what a process has used so far, and the ended children that it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = sum(map(int, fields[11 : 15 if children else 13]))
    return Usage(ticks / _TICK, resident(pid, "VmHWM"))


def resident(pid: int, kind: str = "VmRSS") -> float:
    """Return the memory of a process in MB, by a field of `/proc/PID/status` (proc(5))."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    found = next(int(line.split()[1]) for line in lines if line.startswith(f"{kind}:"))
    return found * 1024 / 1e6


def requests_served(metrics: str) -> dict[tuple[str, str], int]:
    """Read from an API server's `/metrics` how many requests it served, by verb and resource.

    Dry runs and errors count as well: whoever repeats a request has the API server do it twice.
    """
    served: dict[tuple[str, str], int] = {}
    for line in metrics.splitlines():
        if not line.startswith("apiserver_request_total{"):
            continue
        labels, _, value = line.removeprefix("apiserver_request_total{").rpartition("} ")
        read = dict(pair.split("=", 1) for pair in labels.split(","))
        key = read["verb"].strip('"'), read["resource"].strip('"')
        served[key] = served.get(key, 0) + round(float(value))
    return served


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure, and the most that it may be if anything is promised."""

    what: str
    measured: float
    unit: str
    target: float | None = None
    samples: int = 1


def show(title: str, figures: Sequence[Figure]) -> None:
    """Print figures beside their targets."""
    table = Table(title=f"{title} ({machine()})", title_justify="left")
    for column in ("figure", "target", "measured", "samples", ""):
        table.add_column(column, justify="right" if column in {"target", "measured"} else "left")
    for one in figures:
        target = "" if one.target is None else f"{one.target:g} {one.unit}"
        missed = one.target is not None and one.measured > one.target
        verdict = "" if one.target is None else "MISSED" if missed else "met"
        digits = 1 if one.measured >= 10 else 2
        measured = f"{one.measured:.{digits}f} {one.unit}"
        table.add_row(one.what, target, measured, str(one.samples), verdict)
    Console(width=100, highlight=False).print(table)
