"""Finds the Pod specs in a manifest of any kind, such as a Deployment, a JobSet or a RayCluster.

Kinds and the places of their templates are not listed here: what has containers or claims as a Pod
has them is a Pod spec.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeGuard

from partita.validation.field_errors import Path
from partita.validation.manifest_objects import text_of

__all__ = ["PodSpecInManifest", "claim_entries", "pod_specs"]

_COPIES_ANNOTATIONS: Final = frozenset({"InferenceService", "Notebook"})
"""Kinds whose controllers copy the annotations of the object to its Pods: those of KServe
(kserve/kserve pkg/controller/v1beta1) and of Kubeflow (kubeflow/notebooks notebook-controller)."""


@dataclass(frozen=True, slots=True)
class PodSpecInManifest:
    """A Pod spec and the annotations of its Pods, with their places in the manifest."""

    path: Path
    """Place of the spec."""
    spec: dict[str, Any]
    annotations: dict[str, Any]
    annotations_path: Path
    """Place of the annotations, or where they would be."""


def pod_specs(body: dict[str, Any]) -> Iterator[PodSpecInManifest]:
    """Yield the Pod specs in an object."""
    copied = _annotations(body) if text_of(body.get("kind")) in _COPIES_ANNOTATIONS else {}
    for parent, path, spec in _found(body, (), None):
        if path[-1:] == ("spec",) and parent is not None:
            own, place = _annotations(parent), (*path[:-1], "metadata", "annotations")
        else:  # KServe: a predictor has annotations beside the fields of a Pod spec
            own, place = _mapping(spec.get("annotations")), (*path, "annotations")
        if copied and not own:
            place = ("metadata", "annotations")
        yield PodSpecInManifest(path, spec, {**copied, **own}, place)


def _found(
    value: Any, path: Path, parent: dict[str, Any] | None
) -> Iterator[tuple[dict[str, Any] | None, Path, dict[str, Any]]]:
    """Yield each Pod spec with its place and the mapping that contains it."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _found(item, (*path, index), None)
    elif isinstance(value, dict):
        if path and (_are_mappings(value.get("containers")) or _has_claims(value)):
            yield parent, path, value
            return
        for key, item in value.items():
            yield from _found(item, (*path, key), value)


def _are_mappings(value: Any) -> TypeGuard[list[dict[str, Any]]]:
    return isinstance(value, list) and bool(value) and all(isinstance(v, dict) for v in value)


def _has_claims(value: dict[str, Any]) -> bool:
    claims = value.get("resourceClaims")
    names = {"resourceClaimName", "resourceClaimTemplateName"}
    return _are_mappings(claims) and all(names & claim.keys() for claim in claims)


def claim_entries(spec: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the readable entries of `spec.resourceClaims`, with their indexes."""
    entries = spec.get("resourceClaims")
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        if isinstance(entry, dict):
            yield index, entry


def _annotations(body: dict[str, Any]) -> dict[str, Any]:
    return _mapping(_mapping(body.get("metadata")).get("annotations"))


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
