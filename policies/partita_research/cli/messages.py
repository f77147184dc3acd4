"""Messages that several research commands have in common."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from partita.cli.terminal import UserError, warn

if TYPE_CHECKING:
    from partita_policies.recordings import RejectedLine

__all__ = ["SHOWN", "few", "missing_extra", "warn_of_rejected"]

SHOWN = 5
"""Maximum number of items that a message names one by one."""


def few(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def missing_extra(module: str, extra: str) -> UserError:
    """Return the error for a missing module, with the command that installs it."""
    return UserError(
        f"{module} is not installed: run `pip install -e '.[{extra}]'` in a checkout of Partita"
    )


def warn_of_rejected(lines: "Sequence[RejectedLine]") -> None:
    """Warn of the lines of recordings that are skipped."""
    for line in lines[:SHOWN]:
        warn(f"{line}; it is skipped")
    if len(lines) > SHOWN:
        warn(f"{len(lines) - SHOWN} more lines are skipped")
