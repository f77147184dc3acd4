"""Tables of the output of `partita explain`."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from rich.table import Table
from rich.text import Text

from partita.cli.number_format import duration
from partita.console.policy_answer import PolicyAnswer
from partita.models import Attempt
from partita.models.quantities import format_request, gib, seconds_since

__all__ = ["attempts_table", "grid", "policy_table"]


def grid(rows: Iterable[Sequence[str]]) -> Table:
    """Return a table of names, values, and where each value is written."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold", style="dim")
    for row in rows:
        table.add_row(*row)
    return table


def policy_table(answers: Sequence[PolicyAnswer], why: str) -> Table:
    """Return the policies' answers.

    Parameters
    ----------
    why
        The reason that is printed above, which is not repeated.
    """
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for style in ("", "dim", ""):
        table.add_column(style=style, no_wrap=True)
    table.add_column(overflow="fold", style="dim")
    before = ""
    for answer in answers:
        match answer.decision:
            case "start":
                what = Text("start it", style="green")
                beside = ", ".join(answer.beside) or "no other job"
                detail = f"on {', '.join(answer.gpus)} beside {beside}"
                if answer.beside and answer.slowdown is not None and answer.slowdown.measured:
                    factor = answer.slowdown.factor
                    detail += f", predicted to take {factor:.2f} times as long as alone"
            case "wait":
                what = Text("not start it", style="yellow")
                detail = ": ".join(filter(None, [answer.reason, answer.message]))
                if detail == why:
                    detail = "for the reason above"
                elif detail == before:
                    detail = "for the same reason"
                else:
                    before = detail
            case "fail":
                what, detail = Text("fail", style="red"), answer.message
        table.add_row(answer.policy, answer.role, what, detail)
    return table


def attempts_table(attempts: Sequence[Attempt], peak: int | None) -> Table:
    """Return the attempts of a job.

    Of each it has how long it waited, took to start, ran before it used the GPU, and ran in all.

    Parameters
    ----------
    peak
        The most memory that the running attempt has used; None if it is not measured.
    """
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("#", "Outcome", "On", "Memory", "Used", "Waited", "Start", "To GPU", "Ran"):
        right = name not in {"Outcome", "On"}
        table.add_column(name, justify="right" if right else "left", no_wrap=True)
    table.add_column("Beside at start", overflow="fold")
    table.add_column("Message", overflow="fold", style="dim")
    for attempt in attempts:
        used = attempt.peak_memory if attempt.outcome else attempt.peak_memory or peak
        now = "running" if attempt.start_time else "starting"
        has = format_request(attempt.memory, None, 1, attempt.memory_limit)
        table.add_row(
            str(attempt.number),
            attempt.outcome.value if attempt.outcome else now,
            ", ".join(attempt.servers),
            has if attempt.memory else "-",
            gib(used) if used else "-",
            _between(attempt.queued_time, attempt.booked_time),
            _between(attempt.booked_time, attempt.start_time),
            _between(attempt.start_time, attempt.first_use_time),
            _between(attempt.start_time, attempt.end_time or datetime.now(UTC)),
            ", ".join(attempt.beside) or "-",
            attempt.message,
        )
    return table


def _between(start: datetime | None, end: datetime | None) -> str:
    return duration(seconds_since(start, end)) if start and end else "-"
