"""Sees to it that the cluster knows our kinds as this release does, before anything is written.

A field that an older CRD lacks is dropped by the API server without a word
(https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/,
"Field pruning"): a ledger written there would lose allocations. A newer CRD is no trouble, as
fields are only ever added.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from typing import Any, Final, NoReturn

import structlog

from partita.constants import VERSION
from partita.kube.client import CRDS, Kube
from partita.kube.errors import KubernetesError, NotFoundError
from partita.models import crd

__all__ = [
    "DefinitionError",
    "error_of",
    "established",
    "shortcoming",
    "stay",
    "wait_for_definitions",
]

Json = dict[str, Any]

LOOK_EVERY: Final = 2.0
"""Seconds between two looks at CRDs that are not as they should be."""
LOOK_AGAIN: Final = 30.0
"""Seconds between two looks at CRDs that were as they should be."""
_NAMED: Final = 3
"""Missing fields that are named: those of one release come together."""
_REMEDY: Final = "apply those of this release: `partita crds --install`, or `kubectl apply -k crds`"


class DefinitionError(Exception):
    """A CRD is missing or too old; the text says which, and what to do."""


async def wait_for_definitions(kube: Kube, waits: Callable[[str], None]) -> None:
    """Return once the API server serves all of our kinds with all their fields.

    Parameters
    ----------
    waits
        Told what is wrong, and what to do about it.
    """
    log = structlog.get_logger().bind(part="definitions")
    said = ""
    while why := await _problem_or_error(kube):
        waits(why)
        if why != said:
            said = why
            log.warning("waiting for the CRDs", why=why)
        await asyncio.sleep(LOOK_EVERY)


async def stay(kube: Kube) -> NoReturn:
    """Work for as long as the CRDs are as they should be.

    Raises
    ------
    DefinitionError
        One was deleted or replaced by an older one: nothing can be decided or recorded any more.
    """
    while True:
        await asyncio.sleep(LOOK_AGAIN)
        with suppress(KubernetesError):  # what cannot be read may be there
            if why := await _problem(kube):
                raise DefinitionError(why)


async def error_of(kube: Kube) -> DefinitionError:
    """Return what is wrong with the CRDs, after the API server said that it knows no such kind."""
    why = await _problem_or_error(kube)
    return DefinitionError(why or "a CRD was not served for a moment")


async def _problem_or_error(kube: Kube) -> str:
    try:
        return await _problem(kube)
    except KubernetesError as error:
        return f"the CRDs cannot be read ({error})"


async def _problem(kube: Kube) -> str:
    """Say which CRDs are missing or too old, and what to do; empty where all are there."""
    said = []
    for wanted in _wanted():
        name = wanted["metadata"]["name"]
        try:
            found = await kube.get(CRDS, name)
        except NotFoundError:
            said.append(f"there is no CRD {name}")
        else:
            if text := shortcoming(wanted, found):
                said.append(f"CRD {name} {text}")
    return f"{'; '.join(said)}: {_REMEDY}" if said else ""


def shortcoming(wanted: Json, found: Json) -> str:
    """Say what a CRD in the cluster lacks of the one that is wanted; empty when nothing."""
    version = next((v for v in found["spec"]["versions"] if v["name"] == VERSION), None)
    if version is None or not version["served"]:
        return f"does not serve {VERSION}"
    (ours,) = wanted["spec"]["versions"]
    if missing := list(_missing(_schema(ours), _schema(version))):
        named = ", ".join(missing[:_NAMED])
        more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        return f"is older than this release and lacks {named}{more}"
    return "" if established(found) else "is not served yet"


def established(definition: Json) -> bool:
    """Tell whether the API server serves a CRD."""
    conditions = (definition.get("status") or {}).get("conditions") or []
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


def _schema(version: Json) -> Json:
    schema: Json = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    return schema


def _missing(ours: Json, theirs: Json, path: str = "") -> Iterator[str]:
    """Find the fields that would be dropped."""
    if theirs.get("x-kubernetes-preserve-unknown-fields"):
        return
    for name, field in ours.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        if name not in theirs.get("properties", {}):
            yield here
        else:
            yield from _missing(field, theirs["properties"][name], here)
    for key, sign in (("items", "[]"), ("additionalProperties", ".*")):
        inner, other = ours.get(key), theirs.get(key)
        if isinstance(inner, dict):
            if isinstance(other, dict):
                yield from _missing(inner, other, path + sign)
            elif other is not True:
                yield path + sign


@cache
def _wanted() -> list[Json]:
    return crd.crds()
