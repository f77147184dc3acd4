"""Prints all output: data to stdout, messages and errors to stderr."""

import json
import os
import re
import sys
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any

import click
from typing_extensions import override

from partita.constants import CONTROL_CODES

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

__all__ = [
    "UserError",
    "columns",
    "console",
    "data",
    "display",
    "dump",
    "dump_object",
    "interactive",
    "live",
    "quiet_logs",
    "raw",
    "say",
    "warn",
]

WIDE = 160
"""Columns if stdout is a file or a pipe."""


def _harmless(text: str) -> str:
    """Remove what a terminal would execute: names and messages are those of users."""
    return text.translate(CONTROL_CODES)


class UserError(click.ClickException):
    """The command failed; the message contains what to do. Exit code 1."""

    @override
    def show(self, file: IO[Any] | None = None) -> None:
        said = _harmless(self.format_message())
        click.echo(click.style("Error: ", fg="red") + said, file=file, err=True)


def data(text: str) -> None:
    """Print a result to stdout."""
    click.echo(_harmless(text))


def raw(chunk: bytes) -> None:
    """Print bytes of a program's log to stdout without changes."""
    sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()


def dump(value: Any, output: str = "json") -> None:
    """Print data for scripts to stdout, as `json` or `yaml`."""
    from partita.console.as_data import as_data

    value = as_data(value)
    if output == "yaml":
        click.echo(_yaml_text(value), nl=False)
    else:
        click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def dump_object(body: dict[str, Any], output: str) -> None:
    """Print an object of the API server, as kubectl does without the record of its fields."""
    meta = {key: value for key, value in body["metadata"].items() if key != "managedFields"}
    dump({**body, "metadata": meta}, output)


def _yaml_text(value: Any) -> str:
    """Return YAML in which strings are quoted that kubectl would read as numbers.

    In YAML 1.1, the version of PyYAML, 1e5 is a string; kubectl reads it as a number.
    """
    import yaml

    class Dumper(yaml.SafeDumper):
        pass

    Dumper.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"[-+.0-9][0-9_.]*([eE][-+]?[0-9]+)?$"), None
    )
    return yaml.dump(value, Dumper=Dumper, sort_keys=False, allow_unicode=True)


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


def columns(rows: list[list[str]]) -> None:
    """Print cells in columns to stdout, as kubectl does: not truncated, and empty cells as `-`."""
    rows = [[_harmless(cell).replace("\n", " ") for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [(cell or "-").ljust(width) for cell, width in zip(row, widths, strict=True)]
        click.echo("   ".join(cells).rstrip())


def say(text: str) -> None:
    """Print a message to stderr."""
    click.echo(_harmless(text), err=True)


def warn(text: str) -> None:
    """Print a warning to stderr."""
    click.echo(click.style("Warning: ", fg="yellow") + _harmless(text), err=True)


def interactive() -> bool:
    """Return whether stdout is a terminal."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def console() -> "Console":
    """Return a console for stdout with the terminal's width."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class HarmlessConsole(Console):
        @override
        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterator[Segment]:
            for text, style, control in super().render(renderable, options):
                yield Segment(text if control else _harmless(text), style, control)

    known = interactive() or "COLUMNS" in os.environ
    return HarmlessConsole(
        width=None if known else WIDE, highlight=False, markup=False, emoji=False
    )


def live(*, whole_screen: bool = False) -> "Live":
    """Return a display that is redrawn in place; for terminals only."""
    from rich.live import Live

    return Live(console=console(), screen=whole_screen, auto_refresh=False, transient=True)


def quiet_logs() -> None:
    """Limit the logs of the modules that a command calls to warnings, on stderr.

    Call it before importing them: so structlog does not import rich, which takes longer than the
    rest of structlog.
    """
    import logging

    from partita.import_trim import leave_out_unused

    leave_out_unused()
    import structlog

    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
