"""Finds the Pod specs in a manifest of any kind, such as a Deployment, a JobSet or a RayCluster.

Kinds and the places of their templates are not listed here: what has containers or claims as a Pod
has them is a Pod spec. Exceptions are the kinds that build the spec of a Pod from fields of their
own: the Workflows of Argo (`partita.validation.argo_templates`), and the predictors of KServe, in
which the field `model` is a container.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeGuard

from partita.validation.field_errors import Path
from partita.validation.manifest_objects import Finding, ManifestObject, mapping, text_of

__all__ = [
    "PodSpecInManifest",
    "annotations_of",
    "foreign_scheduler",
    "pod_specs",
]

Json = dict[str, Any]

_COPIES_ANNOTATIONS: Final = frozenset({"InferenceService", "Notebook"})
"""Kinds whose controllers copy the annotations of the object to its Pods: those of KServe
(kserve/kserve pkg/controller/v1beta1) and of Kubeflow (kubeflow/notebooks notebook-controller)."""
_MODEL: Final = "model"
_MODEL_CONTAINER: Final = "kserve-container"
"""Name of the container that KServe makes of a model (`InferenceServiceContainerName` in
kserve/kserve, pkg/constants)."""


@dataclass(frozen=True, slots=True)
class PodSpecInManifest:
    """A Pod spec and the annotations of its Pods, with their places in the manifest."""

    found: ManifestObject
    """The object of which it is a part."""
    path: Path
    """Place of the spec."""
    spec: Json
    annotations: Json
    annotations_path: Path
    """Place of the annotations, or where they would be."""
    moved: tuple[tuple[Path, Path], ...] = ()
    """Parts of the spec that stand elsewhere: the path in the spec, and the place."""

    def place(self, *path: str | int) -> Path:
        """Return the place in the manifest of a path in the spec."""
        for start, place in self.moved:
            if path[: len(start)] == start:
                return (*place, *path[len(start) :])
        return (*self.path, *path)

    def finding(self, path: Path, message: str, *, warning: bool = False) -> Finding:
        """Return a finding about a path in the spec."""
        return self.found.finding(self.place(*path), message, warning=warning)

    def about_annotation(self, name: str, message: str, *, warning: bool = False) -> Finding:
        """Return a finding about an annotation of the Pods."""
        return self.found.finding((*self.annotations_path, name), message, warning=warning)


def pod_specs(found: ManifestObject) -> Iterator[PodSpecInManifest]:
    """Yield the Pod specs in an object."""
    body = found.body
    copied = annotations_of(body) if text_of(body.get("kind")) in _COPIES_ANNOTATIONS else {}
    for parent, path, spec in _found(body, (), None):
        moved: tuple[tuple[Path, Path], ...] = ()
        if path[-1:] == ("spec",) and parent is not None:
            own, place = annotations_of(parent), (*path[:-1], "metadata", "annotations")
        else:  # KServe: a predictor has annotations beside the fields of a Pod spec
            own, place = mapping(spec.get("annotations")), (*path, "annotations")
        if copied and not own:
            place = ("metadata", "annotations")
        containers: Json = {}
        if _is_model(spec):
            containers = {"containers": [{**spec[_MODEL], "name": _MODEL_CONTAINER}]}
            moved = ((("containers", 0), (*path, _MODEL)),)
        notes = {**copied, **own}
        yield PodSpecInManifest(found, path, spec | containers, notes, place, moved)


def _found(value: Any, path: Path, parent: Json | None) -> Iterator[tuple[Json | None, Path, Json]]:
    """Yield each Pod spec with its place and the mapping that contains it."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _found(item, (*path, index), None)
    elif isinstance(value, dict):
        if (path and (_are_mappings(value.get("containers")) or _has_claims(value))) or _is_model(
            value
        ):
            yield parent, path, value
        for key, item in value.items():
            yield from _found(item, (*path, key), value)


def _is_model(value: Json) -> bool:
    """Return whether a mapping is a predictor of KServe whose container is `model`."""
    model = value.get(_MODEL)
    named = isinstance(model, dict) and ("modelFormat" in model or "storageUri" in model)
    return named and "containers" not in value


def _are_mappings(value: Any) -> TypeGuard[list[Json]]:
    return isinstance(value, list) and bool(value) and all(isinstance(v, dict) for v in value)


def _has_claims(value: Json) -> bool:
    claims = value.get("resourceClaims")
    names = {"resourceClaimName", "resourceClaimTemplateName"}
    return _are_mappings(claims) and all(names & claim.keys() for claim in claims)


def foreign_scheduler(spec: Json) -> str:
    """Return what a Pod with a claim needs of a scheduler that it names; empty for kube-scheduler.

    A scheduler that binds a Pod without reserving its claims leaves it to kubelet, which refuses it
    (volcano-sh/volcano issue 5119).
    """
    name = text_of(spec.get("schedulerName"))
    if name in {"", "default-scheduler"}:
        return ""
    return (
        f"scheduler {name} must reserve the Pod's ResourceClaims, or kubelet refuses the Pod: "
        "leave schedulerName out unless it is kube-scheduler under another name"
    )


def annotations_of(body: Json) -> Json:
    """Return the annotations in the metadata of an object or a template; empty if it has none."""
    return mapping(mapping(body.get("metadata")).get("annotations"))
