"""Everything that is printed: data to stdout, talk to stderr, errors in one sentence."""

import json
import os
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click
from typing_extensions import override

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

__all__ = [
    "UserError",
    "console",
    "data",
    "display",
    "dump",
    "interactive",
    "live",
    "quiet_logs",
    "raw",
    "say",
    "warn",
    "write_json",
]

WIDE = 160
"""Columns where nobody says how many there are: a file or a pipe has no edge."""


class UserError(click.ClickException):
    """Something failed; the message is one sentence that says what to do. Exit code 1."""

    @override
    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(click.style("Error: ", fg="red") + self.format_message(), file=file, err=True)


def data(text: str) -> None:
    """Print what a script reads, to stdout."""
    click.echo(text)


def raw(chunk: bytes) -> None:
    """Pass on what a program printed, as it is, to stdout."""
    sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()


def dump(value: Any) -> None:
    """Print JSON to stdout."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def write_json(value: Any, path: Path) -> None:
    """Write JSON to a file, or to stdout for `-`.

    Raises
    ------
    UserError
        It cannot be written.
    """
    if str(path) == "-":
        dump(value)
        return
    try:
        path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}") from error


def display(renderable: "RenderableType") -> None:
    """Print a table or styled text to stdout."""
    screen = console()
    if interactive():
        screen.print(renderable)
        return
    with screen.capture() as printed:
        screen.print(renderable)
    for line in printed.get().splitlines():
        click.echo(line.rstrip())


def say(text: str) -> None:
    """Tell a person what is going on, on stderr."""
    click.echo(text, err=True)


def warn(text: str) -> None:
    """Tell a person of something that may be wrong, on stderr."""
    click.echo(click.style("Warning: ", fg="yellow") + text, err=True)


def interactive() -> bool:
    """Tell whether somebody watches stdout."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def console() -> "Console":
    """Return the console of stdout, as wide as the terminal."""
    from rich.console import Console

    known = interactive() or "COLUMNS" in os.environ
    return Console(width=None if known else WIDE, highlight=False, markup=False, emoji=False)


def live(*, whole_screen: bool = False) -> "Live":
    """Return a display that is drawn anew in place; for terminals only."""
    from rich.live import Live

    return Live(console=console(), screen=whole_screen, auto_refresh=False, transient=True)


def quiet_logs() -> None:
    """Keep the logs of what we call to warnings, on stderr."""
    import logging

    import structlog

    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
