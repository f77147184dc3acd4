"""Checks of ResourceClaims and their templates that name a device class of Partita."""

from collections.abc import Iterator
from typing import Any

from partita.models.device_class import class_target, names_device_class
from partita.store.claim_view import ClaimView
from partita.validation.dry_run import create
from partita.validation.field_errors import Path, value_at
from partita.validation.kinds import builtin_kinds
from partita.validation.manifest_objects import (
    Finding,
    KnownClaim,
    KnownObjects,
    ManifestObject,
    text_of,
)

__all__ = ["claim_findings", "claim_view", "is_claim", "read_claim"]

Json = dict[str, Any]

_SPEC: dict[str, Path] = {
    "ResourceClaim": ("spec",),
    "ResourceClaimTemplate": ("spec", "spec"),
}
"""Place of the claim's spec, by kind."""


def is_claim(body: Json) -> bool:
    """Return whether an object is a claim, or a template of claims, of a class of Partita."""
    group = text_of(body.get("apiVersion")).partition("/")[0]
    return (
        group == "resource.k8s.io"
        and text_of(body.get("kind")) in _SPEC
        and names_device_class(body)
    )


def read_claim(found: ManifestObject, known: KnownObjects) -> Iterator[Finding]:
    """Yield what the API server or the operator would refuse; note the claim if there is nothing.

    Unknown fields are removed from the object, and defaults are set.
    """
    body, kind = found.body, found.body["kind"]
    if body["apiVersion"] != "resource.k8s.io/v1":
        yield found.finding(("apiVersion",), "Partita reads claims of resource.k8s.io/v1: write it")
        return
    problems = list(create(found, builtin_kinds()[body["apiVersion"], kind]))
    yield from problems
    if problems:
        return
    place, meta = _SPEC[kind], body.get("metadata") or {}
    view = claim_view(text_of(meta.get("name")), value_at(body, place))
    if view is None:
        return
    if view.problem:
        yield found.finding((*place, "devices", "requests", 0), view.problem)
        return
    known.claims.append(KnownClaim(found, kind, view))


def claim_view(name: str, spec: Json) -> ClaimView | None:
    """Return what the operator reads of a claim with this spec; None if its class is another's."""
    meta = {
        "uid": "",
        "name": name,
        "namespace": "",
        "resourceVersion": "0",
        "creationTimestamp": "1970-01-01T00:00:00Z",
    }
    return ClaimView.parse({"metadata": meta, "spec": spec})


def claim_findings(claim: KnownClaim, known: KnownObjects) -> Iterator[Finding]:
    """Yield what does not agree with the partitions in the files."""
    named = claim.view.device_class
    target = class_target(named, known.partitions)
    if target is None or not known.partitions:
        return
    path = (*_SPEC[claim.kind], "devices", "requests", 0, "exactly", "deviceClassName")
    partitions = known.partitions.get(target.partition)
    if not partitions:
        yield claim.found.finding(path, known.absent(target.partition), warning=True)
    elif target.slice and not any(p.spec.slice(target.slice) for p in partitions):
        slices = ", ".join(s.name for s in partitions[0].spec.slices) or "none"
        said = f"GPUPartition {target.partition} has no slice {target.slice} (it has: {slices})"
        yield claim.found.finding(path, said)
