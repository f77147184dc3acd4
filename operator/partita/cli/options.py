"""Options that several commands share, and the types of their values."""

import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click
from typing_extensions import override

from partita.cli.completions import complete_jobs, complete_names
from partita.constants import LONGEST_KUBELET_DIRECTORY

__all__ = [
    "KUBELET_FOLDER",
    "MEMORY",
    "Cluster",
    "JobName",
    "OutputOption",
    "ReadValue",
    "cluster_options",
    "job_argument",
    "kubeconfig_option",
    "namespace_option",
    "output_option",
    "setting",
]

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


class Cluster(NamedTuple):
    """The cluster of a command: a kubeconfig and one of its contexts."""

    kubeconfig: str | None = None
    context: str | None = None


class ReadValue(click.ParamType[T]):
    """The type of values that a function reads.

    Parameters
    ----------
    name
        What stands for a value in the help.
    read
        Reads a value as it is written. The message of its ValueError contains a correction.
    """

    def __init__(self, name: str, read: Callable[[str], T]) -> None:
        self.name = name
        self._read = read

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> T:
        try:
            return self._read(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _memory(text: str) -> int:
    from partita.models.quantities import parse_gpu_memory

    return parse_gpu_memory(text)


def _kubelet_directory(text: str) -> str:
    path = os.path.normpath(text)
    if not path.startswith("/"):
        raise ValueError(f"{text} is relative: write kubelet's --root-dir")
    if len(path) > LONGEST_KUBELET_DIRECTORY:
        raise ValueError(
            f"{text} has more than {LONGEST_KUBELET_DIRECTORY} characters, and the path of a "
            "socket below it at most 107: give kubelet a shorter --root-dir"
        )
    return path


def _kubeconfig_files(text: str) -> str:
    try:
        there = any(Path(path).expanduser().is_file() for path in text.split(os.pathsep))
    except (OSError, RuntimeError):
        there = False  # a name is too long, or begins with that of an unknown user
    if not there:
        raise ValueError(f"there is no file {text}: write the path of a kubeconfig")
    return text


MEMORY = ReadValue("quantity", _memory)
"""A Kubernetes quantity, converted to bytes."""
KUBELET_FOLDER = ReadValue("folder", _kubelet_directory)
"""An absolute path, short enough for the sockets below it."""


kubeconfig_option = click.option(
    "--kubeconfig",
    type=ReadValue("file", _kubeconfig_files),
    envvar="KUBECONFIG",
    show_envvar=True,
    metavar="FILE",
    help="Kubeconfig of the cluster. By default the service account of the Pod, or ~/.kube/config.",
)


def setting(name: str, *more: str, **attributes: Any) -> Callable[[F], F]:
    """Return a decorator that adds an option which a variable sets, too: PARTITA_ and its name."""
    variable = f"PARTITA_{name.removeprefix('--').replace('-', '_').upper()}"
    shown = attributes.get("default") not in {None, ""}
    usual = {"envvar": variable, "show_envvar": True, "show_default": shown}
    return click.option(name, *more, **{**usual, **attributes})


def cluster_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--kubeconfig` and `--context`; the command gets both as `cluster`, a Cluster."""

    @wraps(function)
    def with_cluster(*, kubeconfig: str | None, context: str | None, **options: Any) -> Any:
        return function(cluster=Cluster(kubeconfig, context), **options)

    context = click.option(
        "--context",
        metavar="NAME",
        help="Context of the kubeconfig. By default its current context.",
    )
    return kubeconfig_option(context(with_cluster))


namespace_option = click.option(
    "--namespace",
    "-n",
    metavar="NAME",
    shell_complete=complete_names("NAMESPACES"),
    help="Namespace of the jobs. By default that of the kubeconfig's context.",
)


class JobName(NamedTuple):
    """A job named on the command line; None means the namespace of the kubeconfig's context."""

    name: str
    namespace: str | None = None

    @classmethod
    def read(cls, text: str, namespace: str | None) -> "JobName":
        """Parse `NAME` or `NAMESPACE/NAME` together with the value of `--namespace`.

        Raises
        ------
        click.UsageError
            The arguments contain two different namespaces, or no job.
        """
        before, slash, name = text.rpartition("/")
        if not name or "/" in before or (slash and not before):
            raise click.UsageError(f"{text!r} names no job: write NAME or NAMESPACE/NAME")
        if slash and namespace not in {None, before}:
            raise click.UsageError(
                f"{text} and --namespace {namespace} name different namespaces: write one of them"
            )
        return cls(name, before or namespace)


def job_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add JOB, as NAME or NAMESPACE/NAME, and `--namespace`; the command gets `job`, a JobName."""

    @wraps(function)
    def with_job(*, job: str, namespace: str | None, **options: Any) -> Any:
        return function(job=JobName.read(job, namespace), **options)

    return click.argument("job", shell_complete=complete_jobs)(namespace_option(with_job))


class OutputOption(click.Option):
    """The option `--output` of a command, with the type of its data in json and yaml.

    Attributes
    ----------
    shape
        `module:name` of the type. `tools/output_schemas.py` makes a JSON Schema of it.
    """

    def __init__(self, *names: Any, shape: str, **attributes: Any) -> None:
        super().__init__(*names, **attributes)
        self.shape = shape


def output_option(shape: str, *more: str, usual: str = "table") -> Callable[[F], F]:
    """Return a decorator that adds `--output` with the usual format, json, yaml and others.

    Parameters
    ----------
    shape
        `module:name` of the type of the data in json and yaml.
    usual
        Name of the default, which is for people: `table` or `text`.
    """
    units = " In json and yaml, memory is in bytes and time in seconds." if usual == "table" else ""
    return click.option(
        "--output",
        "-o",
        cls=OutputOption,
        shape=shape,
        type=click.Choice([usual, "json", "yaml", *more]),
        default=usual,
        show_default=True,
        help=f"Format of the output.{units}",
    )
