"""Connects to a cluster, parses its objects, and explains errors."""

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from partita.cli.terminal import UserError
from partita.constants import GROUP
from partita.kube.client import Kube
from partita.kube.connect import ConfigException, KubeconfigError, connect
from partita.kube.errors import (
    DefinitionError,
    ForbiddenError,
    KubernetesError,
    LeaseLostError,
    NotFoundError,
    UnavailableError,
)
from partita.times import Times

if TYPE_CHECKING:
    from partita.models import Resource

__all__ = ["explained", "open_cluster", "readable", "times_of_command"]

R = TypeVar("R", bound="Resource")

_NAMESPACE: Final = re.compile(r'namespaces "(.+)" not found')
"""The API server's message if a namespace does not exist, also for a request to create an object
in it."""


@contextmanager
def explained() -> Iterator[None]:
    """Convert connection and API errors into a `UserError` with the cause and what to do."""
    try:
        try:
            yield
        except BaseExceptionGroup as group:
            # Concurrent tasks fail together; the first error has the reason.
            first: BaseException = group
            while isinstance(first, BaseExceptionGroup):
                first = first.exceptions[0]
            if isinstance(first, (KubernetesError, LeaseLostError, DefinitionError)):
                raise first from group
            raise
    except (KubeconfigError, ConfigException) as error:
        raise UserError(
            f"{error}. Name a kubeconfig with --kubeconfig or KUBECONFIG, or start a cluster "
            "with `partita apiserver`"
        ) from error
    except (LeaseLostError, DefinitionError) as error:
        raise UserError(f"{error}. Start the operator again; in a cluster, its Pod does") from error
    except OSError as error:
        raise UserError(str(error)) from error
    except KubernetesError as error:
        raise UserError(_advice(error)) from error


def _advice(error: KubernetesError) -> str:
    """Return the cause of an error and what to do."""
    match error:
        case UnavailableError() if error.status:
            return f"the API server reports an error, try again later: {error.message}"
        case UnavailableError():
            reason = error.__cause__ or error.message
            return (
                f"the API server does not answer ({reason}): check that it runs and that the "
                "kubeconfig is current"
            )
        case ForbiddenError(status=401):
            return "the API server does not accept the kubeconfig's credentials: log in again"
        case ForbiddenError():
            return f"{error.message}: ask for a role that allows it"
        case NotFoundError() if missing := _NAMESPACE.match(error.message):
            name = missing[1]
            return (
                f"namespace {name} does not exist: name another with -n, or create it with "
                f"`kubectl create namespace {name}`"
            )
        case NotFoundError() if f"/apis/{GROUP}/" in error.what and '"' not in error.message:
            return (
                "the CRDs of Partita are not installed in this cluster: run "
                "`partita crds --install`"
            )
        case NotFoundError() if "/apis/resource.k8s.io/" in error.what and '"' not in error.message:
            return (
                "this cluster does not serve resource.k8s.io/v1, so no Pod has a slice by a "
                "claim: that needs Kubernetes 1.34"
            )
    return str(error)


@asynccontextmanager
async def open_cluster(kubeconfig: str | None, context: str | None = None) -> AsyncIterator[Kube]:
    """Connect to the cluster of a kubeconfig's context; raise errors as `UserError`."""
    with explained():
        async with connect(kubeconfig, context) as api:
            yield Kube(api, times=times_of_command())


def times_of_command() -> Times:
    """Return the times that a program passed with the call of the command, or the usual ones."""
    context = click.get_current_context(silent=True)
    return (context.find_object(Times) if context is not None else None) or Times()


def readable(model: type[R], body: dict[str, Any]) -> R:
    """Parse the object of a command.

    Raises
    ------
    UserError
        The object cannot be parsed.
    """
    from pydantic import ValidationError

    from partita.cli.jobs.find_job import key_of
    from partita.models.errors import describe

    try:
        return model.parse(body)
    except ValidationError as error:
        raise UserError(
            f"{model.__name__} {key_of(body)} cannot be read ({describe(error)}): "
            "correct it with `kubectl edit`"
        ) from error
