"""Checks of limits that an admission policy replaces by a claim (`manifests/limits`)."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from partita.constants import ANNOTATION_PARTITION, GROUP, LIMIT_MEMORY, LIMIT_THREADS
from partita.models.quantities import parse_gpu_memory, parse_memory
from partita.validation.claim_checks import claim_view
from partita.validation.field_errors import Path
from partita.validation.manifest_objects import (
    Finding,
    KnownClaim,
    KnownObjects,
    mapping,
    mappings,
    meant,
)
from partita.validation.pod_specs import PodSpecInManifest
from partita.validation.request_checks import UNKNOWN, claim_of_limits, request_findings

__all__ = ["PREFIX", "limit_findings", "limits_of", "meant_name"]

Json = dict[str, Any]

PREFIX: Final = f"{GROUP}/"
"""Begins the names of Partita's annotations and limits."""
_LIMITS: Final = (LIMIT_MEMORY, LIMIT_THREADS)
_CLAIM_OF_LIMITS: Final = "partita-gpu"
"""Name of the Pod's claim that replaces limits."""


def meant_name(name: str, known: Iterable[str]) -> str:
    """Suggest one of the known names, which all have the prefix."""
    short = sorted(one.removeprefix(PREFIX) for one in known)
    return meant(name.removeprefix(PREFIX), short, f"{PREFIX}{{{','.join(short)}}}")


def limits_of(spec: Json) -> list[tuple[Path, str, Any]]:
    """Return place, name and amount of each limit of Partita in the spec of a Pod."""
    found: list[tuple[Path, str, Any]] = []
    for kind in ("initContainers", "containers"):
        for index, container in mappings(spec.get(kind)):
            limits = mapping(mapping(container.get("resources")).get("limits"))
            for name, amount in limits.items():
                if str(name).startswith(PREFIX):
                    found.append(((kind, index, "resources", "limits", name), name, amount))
    return found


def limit_findings(
    pod: PodSpecInManifest,
    limits: list[tuple[Path, str, Any]],
    claims: Mapping[int, KnownClaim],
    known: KnownObjects,
) -> Iterator[Finding]:
    """Yield what is wrong with the limits of a Pod.

    Parameters
    ----------
    limits
        As `limits_of` returns them.
    claims
        Partita's claims in the files that the Pod names, by their index.
    """
    problems = dict(_limit_problems(pod.spec, limits))
    for index, claim in claims.items():
        problems["resourceClaims", index] = (
            f"the Pod also has the limit {LIMIT_MEMORY}: ask by this claim of class "
            f"{claim.view.device_class} or by the limit, not by both"
        )
    for place, said in problems.items():
        yield pod.finding(place, said)
    if problems:
        return
    place, amounts = limits[0][0], {name: amount for _, name, amount in limits}
    partition = pod.annotations.get(ANNOTATION_PARTITION)
    if partition is None and len(known.partitions) > 1:
        there = ", ".join(sorted(known.partitions))
        said = (
            f"there are several partitions ({there}): name one in annotation partita.dev/partition"
        )
        yield pod.finding(place, said)
        return
    if partition is not None and known.partitions and partition not in known.partitions:
        yield pod.about_annotation(ANNOTATION_PARTITION, known.absent(partition), warning=True)
    name = partition or next(iter(known.partitions), UNKNOWN)
    view = claim_view(_CLAIM_OF_LIMITS, claim_of_limits(name, amounts))
    if view is not None:
        yield from request_findings(pod, view, pod.place(*place), known)


def _limit_problems(spec: Json, limits: list[tuple[Path, str, Any]]) -> Iterator[tuple[Path, str]]:
    """Yield what the admission policy cannot replace by a claim, with its place."""
    with_memory = {place[:2] for place, name, _ in limits if name == LIMIT_MEMORY}
    for place, name, amount in limits:
        if name not in _LIMITS:
            yield place, f"unknown resource{meant_name(name, _LIMITS)}"
        elif place[0] == "initContainers":
            yield place, "an init container cannot have it: write it in a container, or use a claim"
        elif name == LIMIT_MEMORY and len(with_memory) > 1:
            yield (
                place,
                "only one container may have it: containers share a slice by resourceClaims",
            )
        elif place[:2] not in with_memory:
            yield place, f"it needs {LIMIT_MEMORY} beside it: write how much memory, such as 6Gi"
        elif said := _amount_problem(name, amount):
            yield place, said
    for index, entry in mappings(spec.get("resourceClaims")):
        if entry.get("name") == _CLAIM_OF_LIMITS:
            said = f"{_CLAIM_OF_LIMITS} is the claim that replaces the limit: choose another name"
            yield ("resourceClaims", index, "name"), said


def _amount_problem(name: str, amount: Any) -> str:
    try:
        value = parse_gpu_memory(amount) if name == LIMIT_MEMORY else parse_memory(amount)
    except ValueError as error:
        return str(error)
    if name == LIMIT_THREADS and not 1 <= value <= 100:
        return f"{amount} is no percentage from 1 to 100: write a number such as 50"
    return ""
