"""Parts of the output of `partita explain` that jobs and workloads share."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from partita.console.ask_policies import PolicyAnswer, Slowdown

__all__ = ["grid", "joined", "policy_table", "slowdown_text"]


def joined(reason: str, message: str) -> str:
    """Return reason and message as one text."""
    return ": ".join(filter(None, [reason, message]))


def slowdown_text(slowdown: Slowdown) -> str:
    """Return a predicted slowdown as a text."""
    if not slowdown.measured:
        return "not predicted: an application on its GPU has no profile yet"
    return f"predicted to take {slowdown.factor:.2f} times as long as alone"


def grid() -> Table:
    """Return a table of names and values."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
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
                    detail += f", {slowdown_text(answer.slowdown)}"
            case "wait":
                what = Text("not start it", style="yellow")
                detail = joined(answer.reason, answer.message)
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
