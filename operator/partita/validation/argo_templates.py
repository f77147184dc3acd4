"""The Pods that Argo makes of the templates of its Workflows.

A template has the parts of a Pod in fields of its own. Its claims replace those of the Workflow,
and `podSpecPatch` is merged over them by name (argoproj/argo-workflows, pull request 16587, and
docs/fields.md). The main container is named `main`. A value with a parameter, `{{...}}`, is known
only when the Workflow runs: it is left out.
"""

from collections.abc import Iterator
from typing import Any, Final

from partita.validation.field_errors import Path
from partita.validation.manifest_objects import text_of
from partita.validation.pod_specs import PodSpecInManifest, annotations_of, mapping
from partita.validation.yaml_documents import Document, read_documents

__all__ = ["argo_pods"]

Json = dict[str, Any]

_GROUP: Final = "argoproj.io/"
_PATCH: Final = "podSpecPatch"
_SPECS: Final[dict[str, Path]] = {
    "ClusterWorkflowTemplate": ("spec",),
    "CronWorkflow": ("spec", "workflowSpec"),
    "Workflow": ("spec",),
    "WorkflowTemplate": ("spec",),
}
"""Place of the spec of a Workflow, by kind."""


def argo_pods(body: Json) -> list[PodSpecInManifest] | None:
    """Return the Pods of the templates of a Workflow; None if it is of another kind."""
    path = _SPECS.get(text_of(body.get("kind")))
    if path is None or not text_of(body.get("apiVersion")).startswith(_GROUP):
        return None
    workflow = body
    for step in path:
        workflow = mapping(workflow.get(str(step)))
    templates = _items(workflow.get("templates"))
    pods = (_pod(workflow, path, t, (*path, "templates", i)) for i, t in templates)
    return [pod for pod in pods if pod is not None]


def _pod(workflow: Json, above: Path, template: Json, path: Path) -> PodSpecInManifest | None:
    """Return the Pod of a template; None if it makes none, such as one of steps."""
    containers = [
        ({"name": "main", **template[key]}, (*path, key))
        for key in ("container", "script")
        if isinstance(template.get(key), dict)
    ]
    grouped = mapping(template.get("containerSet"))
    containers += [(c, (*path, "containerSet", "containers", i)) for i, c in _items(
        grouped.get("containers"))]  # fmt: skip
    if not containers:
        return None
    containers += [(c, (*path, "sidecars", i)) for i, c in _items(template.get("sidecars"))]
    claims = [(entry, (*path, "resourceClaims", i)) for i, entry in _items(
        template.get("resourceClaims"))] or [
        (entry, (*above, "resourceClaims", i))
        for i, entry in _items(workflow.get("resourceClaims"))
    ]  # fmt: skip
    gates: list[tuple[Json, Path]] = []
    for patched, where in ((workflow, above), (template, path)):
        patch, place = _patch(patched.get(_PATCH)), (*where, _PATCH)
        claims = _merged(claims, patch.get("resourceClaims"), place)
        gates = _merged(gates, patch.get("schedulingGates"), place)
        changes = {text_of(c.get("name")): c for _, c in _items(patch.get("containers"))}
        containers = [(c | changes.get(text_of(c.get("name")), {}), at) for c, at in containers]
    parts: dict[str, list[tuple[Json, Path]]] = {
        "containers": containers,
        "initContainers": [(c, (*path, "initContainers", i)) for i, c in _items(
            template.get("initContainers"))],
        "resourceClaims": claims,
        "schedulingGates": gates,
    }  # fmt: skip
    moved = {
        (part, i): place for part, items in parts.items() for i, (_, place) in enumerate(items)
    }
    spec = {part: [_known(item) for item, _ in items] for part, items in parts.items() if items}
    notes = mapping(mapping(workflow.get("podMetadata")).get("annotations"))
    notes = _known({**notes, **annotations_of(template)})
    place = (*path, "metadata", "annotations")
    return PodSpecInManifest(path, spec, notes, place, tuple(moved.items()))


def _items(value: Any) -> Iterator[tuple[int, Json]]:
    for index, item in enumerate(value if isinstance(value, list) else ()):
        if isinstance(item, dict):
            yield index, item


def _patch(text: Any) -> Json:
    """Return a patch of a Pod spec, written as YAML; empty if it cannot be read."""
    documents = read_documents(text_of(text).encode())
    return mapping(next((d.value for d in documents if isinstance(d, Document)), None))


def _merged(entries: list[tuple[Json, Path]], changes: Any, place: Path) -> list[tuple[Json, Path]]:
    """Return entries with those of a patch, which replace others of the same name."""
    named = {text_of(entry.get("name")): (entry, where) for entry, where in entries}
    return [*(named | {text_of(c.get("name")): (c, place) for _, c in _items(changes)}).values()]


def _known(value: Any) -> Any:
    """Return a value without the parts that parameters of the Workflow determine."""
    if isinstance(value, dict):
        return {k: _known(v) for k, v in value.items() if "{{" not in text_of(v)}
    return [_known(item) for item in value] if isinstance(value, list) else value
