"""Options that several commands share, and the kinds of values they take."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from typing_extensions import override

__all__ = ["MEMORY", "json_option", "kubeconfig_option", "output_option"]

F = TypeVar("F", bound=Callable[..., Any])


class _Memory(click.ParamType[int]):
    """A Kubernetes quantity, as bytes."""

    name = "quantity"

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from partita.models.quantities import parse_memory

        try:
            memory = parse_memory(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if memory <= 0:
            self.fail(f"{value} is no amount above zero: write one such as 40Gi", param, ctx)
        return memory


MEMORY = _Memory()


class _Kubeconfig(click.ParamType[str]):
    """One or several files, as in the variable KUBECONFIG."""

    name = "file"

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if not any(Path(path).is_file() for path in text.split(os.pathsep)):
            self.fail(f"there is no file {text}: `partita apiserver` writes one", param, ctx)
        return text


def kubeconfig_option(function: F) -> F:
    """Add `--kubeconfig`."""
    return click.option(
        "--kubeconfig",
        type=_Kubeconfig(),
        envvar="KUBECONFIG",
        show_envvar=True,
        metavar="FILE",
        help="The cluster's kubeconfig; by default that of the Pod, or ~/.kube/config.",
    )(function)


def output_option(function: F) -> F:
    """Add `--output`."""
    return click.option(
        "--output",
        "-o",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="Form of the result; json is for scripts.",
    )(function)


def json_option(function: F) -> F:
    """Add `--json`."""
    return click.option(
        "--json",
        "output",
        type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
        metavar="FILE",
        help="Write the whole result to this file as JSON; - for stdout, without the table.",
    )(function)
