"""The report as Markdown. It starts with what could not be run, and why."""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import fill
from typing import Any

from acceptance.assumptions import assumptions
from acceptance.results import Outcome, Report, Result, Table

__all__ = ["COMMAND", "render"]

COMMAND = "make test-gpu"
_WIDTH = 100
_HOW = (
    f"Run it with `{COMMAND}` on a machine with an NVIDIA GPU, its driver, and `python3` with pynvml "
    "(nvidia-ml-py). Some checks need torch, root or cgroup v2 as well; the "
    "report says which checks did not run, and why. Without make, run "
    "`PYTHONPATH=operator:policies:tests python3 -m acceptance`. It takes up to 30 minutes and "
    "replaces this page."
)
_MADE = (
    f"Written by `{COMMAND}`, which uses the Python, pynvml and torch of the machine, changes no "
    "setting of the GPU and leaves nothing behind."
)
_ASSUMED = (
    "What the test double and the agent assume without a source, by the check that settles it. The "
    "other behaviour of the double has its source beside it, in `tests/gpu`."
)
_EXCEPTIONS = {
    Outcome.NOT_RUN: "Not run, or only in part",
    Outcome.FAILED: "Failed",
    Outcome.NOT_APPLICABLE: "Not applicable to this GPU and driver",
}


def render(report: Report) -> str:
    """Write the report."""
    absent = ": not run, because no GPU was available" if report.absent else ""
    lines = [f"# Acceptance on a real GPU{absent}", ""]
    lines += _not_run(report)
    lines += [
        "| GPU | driver | date |",
        "| --- | --- | --- |",
        f"| {report.gpu or 'none'} | {report.driver or 'none'} | {report.date} |",
        "",
        "" if report.absent else fill(_MADE, _WIDTH),
    ]
    if report.facts:
        facts = "; ".join(f"{key}: {value}" for key, value in report.facts.items())
        lines += ["", f"On it: {facts}."]
    if report.results and not report.absent:
        lines += ["", "| check | outcome | seconds |", "| --- | --- | --- |"]
        lines += [f"| {r.check} | {_outcome(r)} | {r.seconds:.0f} |" for r in report.results]
    for result in report.results:
        lines += ["", f"## {result.check}", "", *_section(result, ran=not report.absent)]
    lines += ["", "## Assumptions", "", fill(_ASSUMED, _WIDTH), ""]
    lines += [
        fill(f"- {a.check}: {a.text} (`{a.file}`)", _WIDTH, subsequent_indent="  ")
        for a in assumptions()
    ]
    return "\n".join(_without_double_blanks(lines)) + "\n"


def _without_double_blanks(lines: Iterable[str]) -> Iterable[str]:
    before = ""
    for line in lines:
        if line or before:
            yield line
        before = line


def _not_run(report: Report) -> list[str]:
    if report.absent:
        reasons = [fill(f"- {reason}", _WIDTH, subsequent_indent="  ") for reason in report.absent]
        return [
            "**Not run: none of these checks has run on a real GPU.** The reason:",
            "",
            *reasons,
            "",
            fill(_HOW, _WIDTH),
            "",
        ]
    good = {Outcome.PASSED, Outcome.NOT_APPLICABLE}
    lines = []
    if all(result.outcome in good for result in report.results):
        lines = ["All checks that apply ran, and all of them passed.", ""]
    for outcome, title in _EXCEPTIONS.items():
        found = [f"- {r.check}: {r.reason}" for r in report.results if r.outcome is outcome]
        if found:
            lines += [f"**{title}:**", "", *found, ""]
    return lines


def _outcome(result: Result) -> str:
    plain = result.outcome in {Outcome.PASSED, Outcome.NOT_APPLICABLE}
    return result.outcome if plain else f"**{result.outcome}**"


def _section(result: Result, *, ran: bool) -> Iterable[str]:
    if ran:
        yield fill(f"{_outcome(result)}{': ' if result.reason else ''}{result.reason}", _WIDTH)
        yield ""
    yield fill(f"Procedure: {result.done}", _WIDTH)
    yield ""
    yield fill(f"Expected: {result.expected}", _WIDTH)
    if result.figures:
        yield from ("", "| figure | measured |", "| --- | --- |")
        yield from (f"| {key} | {_cell(value)} |" for key, value in result.figures.items())
    for table in result.tables:
        yield from ("", f"{table.title}:", "", *_table(table))


def _table(table: Table) -> Iterable[str]:
    yield f"| {' | '.join(table.header)} |"
    yield f"|{' --- |' * len(table.header)}"
    for row in table.rows:
        yield f"| {' | '.join(map(_cell, row))} |"


def _cell(value: Any) -> str:
    if value is None:
        return "not reported"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "nothing"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value).replace("|", "\\|").replace("\n", " ")
