"""`partita validate`: checks YAML files before they are applied."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from partita.cli import terminal
from partita.cli.options import output_option

if TYPE_CHECKING:
    from partita.validation.files import ValidationReport

__all__ = ["command"]

_SUFFIXES = {".yaml", ".yml"}


@click.command("validate", short_help="Check YAML files, offline.")
@click.argument(
    "files",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, allow_dash=True, path_type=Path),
)
@output_option("partita.validation.files:ValidationReport")
def command(*, files: tuple[Path, ...], output: str) -> None:
    """Check Partita's resources in FILES without a cluster.

    FILES are YAML files, folders (all *.yaml and *.yml below them) or - for stdin. An error is what
    the API server would refuse, and what the operator could never run: an unknown policy or a
    wrong parameter of it, a slice that the partition does not have, a template of which no Pod can
    be created. Pods that ask for a share of a GPU are checked in manifests of any kind, such as a
    Deployment, a CronJob or a RayCluster: their claims, limits and annotations. Other objects are
    counted and not checked.

    Each finding is one line, FILE:LINE: KIND/NAME: PATH: MESSAGE. The exit code is 0 without an
    error (warnings are not errors), and 1 with an error or if a folder has no YAML file.

    \b
    Examples:
      partita validate examples/
      kustomize build overlays/prod | partita validate -
      partita validate -o json team-a/*.yaml

    \b
    As a pre-commit hook:
      - repo: https://github.com/YOU/partita
        rev: v0.1.0
        hooks: [{id: partita-validate, files: ^clusters/}]
    """  # noqa: D301
    from partita.validation.files import check_files

    report = check_files(_read(files))
    if output == "table":
        for finding in report.findings:
            terminal.data(str(finding))
        terminal.say(_summary(report))
    else:
        terminal.dump(report, output)
    if report.errors:
        sys.exit(1)


def _read(paths: tuple[Path, ...]) -> Iterator[tuple[str, bytes]]:
    for path in paths:
        if str(path) == "-":
            yield "<stdin>", sys.stdin.buffer.read()
            continue
        file = path
        try:
            files = sorted(_inside(path)) if path.is_dir() else [path]
            if not files:
                raise terminal.UserError(
                    f"{path} holds no YAML files: pass files, a folder with *.yaml or *.yml files, "
                    "or -"
                )
            for file in files:
                yield str(file), file.read_bytes()
        except OSError as error:
            raise terminal.UserError(
                f"{file} cannot be read: {error.strerror}; name another file"
            ) from error


def _inside(folder: Path) -> Iterator[Path]:
    for file in folder.rglob("*"):
        hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
        if file.suffix in _SUFFIXES and not hidden and file.is_file():
            yield file


def _summary(report: "ValidationReport") -> str:
    parts = [
        f"{_count(report.files, 'file')}, {_count(report.checked, 'resource')} checked",
        f"{report.passed_over} others not checked" if report.passed_over else "",
        f"{_count(len(report.errors), 'error')}, {_count(len(report.warnings), 'warning')}"
        if report.findings
        else "no problem found",
    ]
    return "; ".join(filter(None, parts)) + "."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
