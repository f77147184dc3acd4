"""Reads a cluster into the operator's own picture of it, and says why it cannot."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

from pydantic import ValidationError

from partita.cli.terminal import UserError, warn
from partita.constants import GROUP
from partita.informer.state import State
from partita.informer.watched_kinds import feeds
from partita.kube.client import Kind, Kube
from partita.kube.connect import connect
from partita.kube.errors import (
    ForbiddenError,
    KubernetesError,
    NotFoundError,
    UnavailableError,
)
from partita.kube.lease import LeaseLostError
from partita.models import Resource
from partita.models.errors import describe
from partita.operator.crd_check import DefinitionError

__all__ = ["Lists", "explained", "open_cluster", "read_lists", "read_state", "readable", "state_of"]

R = TypeVar("R", bound=Resource)

Lists = dict[Kind, list[dict[str, Any]]]
"""The objects of each kind, as the API server has them."""


@contextmanager
def explained() -> Iterator[None]:
    """Turn what goes wrong between us and an API server into a sentence with what to do."""
    from kubernetes.aio.config import ConfigException
    from yaml import YAMLError

    try:
        try:
            yield
        except BaseExceptionGroup as group:
            # Tasks that ran beside each other fail together; the first one says why.
            first: BaseException = group
            while isinstance(first, BaseExceptionGroup):
                first = first.exceptions[0]
            if isinstance(first, (KubernetesError, LeaseLostError, DefinitionError)):
                raise first from group
            raise
    except (ConfigException, YAMLError, OSError) as error:
        raise UserError(
            f"no cluster: {error}; name a kubeconfig with --kubeconfig or KUBECONFIG, "
            "or start one with `partita apiserver`"
        ) from error
    except LeaseLostError as error:
        raise UserError(f"{error}; it is started again, and waits for its turn") from error
    except DefinitionError as error:
        raise UserError(f"{error}; it is started again, and waits for that") from error
    except UnavailableError as error:
        said = str(error.__cause__ or error.message)
        raise UserError(
            f"the API server does not answer ({said}): is it up, and the kubeconfig of today?"
        ) from error
    except ForbiddenError as error:
        raise UserError(f"{error.message}: ask for a role that allows it") from error
    except NotFoundError as error:
        if f"/apis/{GROUP}/" not in error.what:
            raise UserError(str(error)) from error
        raise UserError(
            "this cluster does not have Partita's kinds: `partita crds --install` brings them"
        ) from error
    except KubernetesError as error:
        raise UserError(str(error)) from error


@asynccontextmanager
async def open_cluster(kubeconfig: str | None) -> AsyncIterator[Kube]:
    """Connect to the cluster of a kubeconfig; errors come out as `UserError`."""
    with explained():
        async with connect(kubeconfig) as api:
            yield Kube(api)


async def read_lists(kube: Kube) -> Lists:
    """List all that the operator goes by."""
    kinds = list(feeds(State()))
    lists = await asyncio.gather(*map(kube.list, kinds))
    return {kind: items for kind, (items, _) in zip(kinds, lists, strict=True)}


def state_of(lists: Lists) -> State:
    """Take lists into a picture, as the operator does when it starts."""
    state = State()
    for kind, apply in feeds(state).items():
        for item in lists[kind]:
            apply(item)
    for one in state.unreadable:
        warn(f"left out: {one.plural} {one.key} cannot be read ({one.problem})")
    return state


async def read_state(kube: Kube) -> State:
    """Read the cluster as it is now."""
    return state_of(await read_lists(kube))


def readable(model: type[R], body: dict[str, Any]) -> R:
    """Read an object that a command is about.

    Raises
    ------
    UserError
        It cannot be read.
    """
    try:
        return model.parse(body)
    except ValidationError as error:
        raise UserError(
            f"{model.__name__} {body['metadata']['name']} cannot be read ({describe(error)}): "
            "correct it with `kubectl edit`"
        ) from error
