"""Creates objects in a cluster: the CRDs, a namespace, and objects of YAML files."""

import asyncio
from contextlib import suppress
from typing import Any, Final, Literal

from partita.cli.terminal import UserError
from partita.kube.claims_api import unserved
from partita.kube.client import CRDS, JOBS, NAMESPACES, PARTITIONS, PROFILES, Kube
from partita.kube.errors import AlreadyExistsError, ConflictError
from partita.models import crd
from partita.process.crd_check import unlisted

__all__ = ["create", "ensure_namespace", "install_crds"]

Json = dict[str, Any]
Change = Literal["created", "updated", "unchanged"]

_SERVED_WITHIN: Final = 30.0
"""Seconds in which the API server must serve a new kind; usually it takes less than one."""
_POLL: Final = 0.05
_KINDS: Final = {(k.api_version, k.kind): k for k in (NAMESPACES, PARTITIONS, JOBS, PROFILES)}


async def install_crds(kube: Kube) -> list[tuple[str, Change]]:
    """Create or update the CRDs, and wait until they are served.

    Returns
    -------
    list of tuple
        The name of each CRD, and `created`, `updated` or `unchanged`.

    Raises
    ------
    UserError
        The cluster is too old, or does not serve the CRDs in time.
    """
    if why := await unserved(kube):
        raise UserError(why)
    changes = [
        (definition["metadata"]["name"], await _install(kube, definition))
        for definition in crd.crds()
    ]
    try:
        async with asyncio.timeout(_SERVED_WITHIN):
            while await unlisted(kube):  # noqa: ASYNC110 - no event of ours
                await asyncio.sleep(_POLL)
    except TimeoutError:
        raise UserError(
            f"the API server has not served the CRDs within {_SERVED_WITHIN:.0f} s: "
            "see `kubectl describe crd`"
        ) from None
    return changes


async def _install(kube: Kube, definition: Json) -> Change:
    name = definition["metadata"]["name"]
    while True:
        try:
            await kube.create(CRDS, definition)
        except AlreadyExistsError:
            old = await kube.get(CRDS, name)
        else:
            return "created"
        try:
            new = await kube.replace(CRDS, {**old, "spec": definition["spec"]})
        except ConflictError:
            continue  # the CRD's status was written meanwhile
        same = new["metadata"]["generation"] == old["metadata"]["generation"]
        return "unchanged" if same else "updated"


async def ensure_namespace(kube: Kube, name: str) -> None:
    """Create a namespace unless it exists."""
    with suppress(AlreadyExistsError):
        await kube.create(NAMESPACES, {"metadata": {"name": name}})


async def create(kube: Kube, obj: Json) -> Json:
    """Create one object of a YAML file; return the API server's version of it.

    Raises
    ------
    UserError
        The kind of the object is not one that the examples use.
    """
    kind = _KINDS.get((str(obj.get("apiVersion")), str(obj.get("kind"))))
    if kind is None:
        raise UserError(
            f"{obj.get('kind')} ({obj.get('apiVersion')}) is none of the kinds that are applied "
            "here: use kubectl for it"
        )
    if kind.namespaced:
        obj["metadata"].setdefault("namespace", "default")
    return await kube.create(kind, obj)
