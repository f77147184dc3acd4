"""Checks that the cluster has what this release needs before anything is written.

Its CRDs must have every field of this release, and discovery must list them: kopf looks there once,
when it starts, for what to watch. ResourceClaims must be served.

The API server silently drops a field that an older CRD does not have
(https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/,
"Field pruning"), so a ledger written there would lose allocations. A newer CRD is compatible,
because fields are only added.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import cache
from typing import Any, Final, NoReturn

import structlog

from partita.constants import GROUP, VERSION
from partita.kube.claims_api import unserved
from partita.kube.client import CRDS, Kube
from partita.kube.errors import DefinitionError, KubernetesError, NotFoundError
from partita.models import crd
from partita.times import Times

__all__ = [
    "explained",
    "shortcoming",
    "unlisted",
    "wait_for_crds",
    "watch_crds",
]

Json = dict[str, Any]

CHECK_SECONDS: Final = 30.0
"""Seconds between two checks of CRDs that were correct."""
_FIELDS_SHOWN: Final = 3
"""Missing fields that a message names; the fields of one release are missing together."""
_REMEDY: Final = "apply those of this release: `partita crds --install`, or `kubectl apply -k crds`"


async def wait_for_crds(
    kube: Kube, on_problem: Callable[[str], None], times: Times = Times()
) -> None:
    """Return once the API server serves claims, and all of Partita's kinds with all their fields.

    Parameters
    ----------
    on_problem
        Called with what is wrong and what to do about it.
    """
    log = structlog.get_logger().bind(part="definitions")
    logged = ""
    while problem := await _problem_or_error(kube):
        on_problem(problem)
        if problem != logged:
            logged = problem
            log.warning("waiting for the API server", why=problem)
        await asyncio.sleep(times.check_crds)


async def watch_crds(kube: Kube) -> NoReturn:
    """Check the CRDs again and again.

    Raises
    ------
    DefinitionError
        If a CRD was deleted or replaced by an older one: nothing can be decided or recorded.
    """
    while True:
        await asyncio.sleep(CHECK_SECONDS)
        with suppress(KubernetesError):  # a CRD that cannot be read may exist
            if why := await _problem(kube):
                raise DefinitionError(why)


async def explained(kube: Kube, work: Callable[[], Awaitable[None]]) -> None:
    """Do some work; if it fails while a CRD is missing, that is the error.

    Raises
    ------
    DefinitionError
        If a CRD is missing or too old.
    """
    try:
        await work()
    except Exception as error:
        if why := await _problem_or_error(kube):
            raise DefinitionError(why) from error
        raise


async def _problem_or_error(kube: Kube) -> str:
    try:
        return await unserved(kube) or await _problem(kube) or await unlisted(kube)
    except KubernetesError as error:
        return f"the CRDs cannot be read ({error})"


async def _problem(kube: Kube) -> str:
    """Return which CRDs are missing or too old, and what to do; empty if all are correct."""
    problems = []
    for wanted in _wanted():
        name = wanted["metadata"]["name"]
        try:
            found = await kube.get(CRDS, name)
        except NotFoundError:
            problems.append(f"CRD {name} is missing")
        else:
            if text := shortcoming(wanted, found):
                problems.append(f"CRD {name} {text}")
    return f"{'; '.join(problems)}: {_REMEDY}" if problems else ""


async def unlisted(kube: Kube) -> str:
    """Return which kinds discovery does not list yet; empty if it lists all."""
    api, listed = f"{GROUP}/{VERSION}", set[str]()
    groups = (await kube.request("GET", "/apis"))["groups"]
    if any(version["groupVersion"] == api for group in groups for version in group["versions"]):
        with suppress(NotFoundError):
            found = await kube.request("GET", f"/apis/{api}")
            listed = {resource["name"] for resource in found["resources"]}
    wanted = {definition["spec"]["names"]["plural"] for definition in _wanted()}
    if not (missing := sorted(wanted - listed)):
        return ""
    return f"the API server does not list {', '.join(missing)} under /apis/{api} yet"


def shortcoming(wanted: Json, found: Json) -> str:
    """Return what a CRD in the cluster lacks compared with `wanted`; empty if nothing."""
    version = next((v for v in found["spec"]["versions"] if v["name"] == VERSION), None)
    if version is None or not version["served"]:
        return f"does not serve {VERSION}"
    (ours,) = wanted["spec"]["versions"]
    if missing := list(_missing(_schema(ours), _schema(version))):
        named = ", ".join(missing[:_FIELDS_SHOWN])
        more = f" and {len(missing) - _FIELDS_SHOWN} more" if len(missing) > _FIELDS_SHOWN else ""
        return f"is older than this release and lacks {named}{more}"
    return ""


def _schema(version: Json) -> Json:
    schema: Json = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    return schema


def _missing(ours: Json, theirs: Json, path: str = "") -> Iterator[str]:
    """Yield the fields that the API server would drop."""
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
