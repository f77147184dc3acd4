"""The Pods that Argo makes of the templates of its Workflows.

A template has the parts of a Pod in fields of its own. Its claims replace those of the Workflow,
and `podSpecPatch` is merged over them by name (argoproj/argo-workflows, pull request 16587, and
docs/fields.md). The main container is named `main`. A value with a parameter, `{{...}}`, is known
only when the Workflow runs: it is left out.

A step or a task can have its template inside, once (docs/inline-templates.md), and a template is
merged over `templateDefaults` (docs/template-defaults.md).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from partita.validation.field_errors import Path
from partita.validation.manifest_objects import ManifestObject, mapping, mappings, text_of
from partita.validation.pod_specs import PodSpecInManifest
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
_TYPES: Final = {"container", "containerSet", "script"}
"""The types of templates that make a Pod. A template has one type, and none by `templateDefaults`
(`TemplateType` in pkg/apis/workflow/v1alpha1/workflow_types.go)."""


def argo_pods(found: ManifestObject) -> list[PodSpecInManifest] | None:
    """Return the Pods of the templates of a Workflow; None if it is of another kind."""
    body = found.body
    path = _SPECS.get(text_of(body.get("kind")))
    if path is None or not text_of(body.get("apiVersion")).startswith(_GROUP):
        return None
    workflow = body
    for step in path:
        workflow = mapping(workflow.get(str(step)))
    defaults = mapping(workflow.get("templateDefaults"))
    pods = (
        _pod(found, workflow, path, _ArgoTemplate(own, at, defaults, (*path, "templateDefaults")))
        for own, at in _templates(workflow, path)
    )
    return [pod for pod in pods if pod is not None]


def _templates(workflow: Json, path: Path) -> Iterator[tuple[Json, Path]]:
    """Yield the templates of a Workflow, and those inside their steps and tasks."""
    for index, template in mappings(workflow.get("templates")):
        at = (*path, "templates", index)
        yield template, at
        groups = template.get("steps")
        for number, group in enumerate(groups if isinstance(groups, list) else ()):
            for i, step in mappings(group):
                yield mapping(step.get("inline")), (*at, "steps", number, i, "inline")
        for i, task in mappings(mapping(template.get("dag")).get("tasks")):
            yield mapping(task.get("inline")), (*at, "dag", "tasks", i, "inline")


@dataclass(frozen=True, slots=True)
class _ArgoTemplate:
    """A template and what it takes over, with their places."""

    own: Json
    path: Path
    defaults: Json
    defaults_path: Path

    def get(self, key: str) -> tuple[Any, Path]:
        """Return a field and its place; None if it is unset."""
        if key in self.own or key in _TYPES:
            return _over(self.defaults.get(key), self.own.get(key)), (*self.path, key)
        return self.defaults.get(key), (*self.defaults_path, key)

    def containers(self, key: str) -> list[tuple[Json, Path]]:
        """Return the containers of a list that is merged by name, with their places."""
        found: dict[str | Path, tuple[Json, Path]] = {}
        for body, path in ((self.defaults, self.defaults_path), (self.own, self.path)):
            for index, item in mappings(body.get(key)):
                place = (*path, key, index)
                name = text_of(item.get("name")) or place
                found[name] = _over(found.get(name, (None,))[0], item), place
        return [*found.values()]


def _over(default: Any, value: Any) -> Any:
    """Return a value merged over a default: mappings key by key."""
    if not (isinstance(default, dict) and isinstance(value, dict)):
        return value
    return default | {key: _over(default.get(key), part) for key, part in value.items()}


def _pod(
    found: ManifestObject, workflow: Json, above: Path, template: _ArgoTemplate
) -> PodSpecInManifest | None:
    """Return the Pod of a template; None if it makes none, such as one of steps."""
    containers = [
        ({"name": "main", **body}, place)
        for body, place in (template.get("container"), template.get("script"))
        if isinstance(body, dict)
    ]
    grouped, place = template.get("containerSet")
    group = mappings(mapping(grouped).get("containers"))
    containers += [(c, (*place, "containers", i)) for i, c in group]
    if not containers:
        return None
    containers += template.containers("sidecars")
    own_claims, place = template.get("resourceClaims")
    claims = [(entry, (*place, i)) for i, entry in mappings(own_claims)] or [
        (entry, (*above, "resourceClaims", i))
        for i, entry in mappings(workflow.get("resourceClaims"))
    ]  # fmt: skip
    gates: list[tuple[Json, Path]] = []
    for text, place in ((workflow.get(_PATCH), (*above, _PATCH)), template.get(_PATCH)):
        patch = _patch(text)
        claims = _merged(claims, patch.get("resourceClaims"), place)
        gates = _merged(gates, patch.get("schedulingGates"), place)
        changes = {text_of(c.get("name")): c for _, c in mappings(patch.get("containers"))}
        containers = [(c | changes.get(text_of(c.get("name")), {}), at) for c, at in containers]
    parts: dict[str, list[tuple[Json, Path]]] = {
        "containers": containers,
        "initContainers": template.containers("initContainers"),
        "resourceClaims": claims,
        "schedulingGates": gates,
    }
    moved = {
        (part, i): place for part, items in parts.items() for i, (_, place) in enumerate(items)
    }
    spec = {part: [_known(item) for item, _ in items] for part, items in parts.items() if items}
    notes = mapping(mapping(workflow.get("podMetadata")).get("annotations"))
    metadata, place = template.get("metadata")
    notes = _known({**notes, **mapping(mapping(metadata).get("annotations"))})
    where = (*place, "annotations")
    return PodSpecInManifest(found, template.path, spec, notes, where, tuple(moved.items()))


def _patch(text: Any) -> Json:
    """Return a patch of a Pod spec, written as YAML; empty if it cannot be read."""
    documents = read_documents(text_of(text).encode())
    return mapping(next((d.value for d in documents if isinstance(d, Document)), None))


def _merged(entries: list[tuple[Json, Path]], changes: Any, place: Path) -> list[tuple[Json, Path]]:
    """Return entries with those of a patch, which replace others of the same name."""
    named = {text_of(entry.get("name")): (entry, where) for entry, where in entries}
    return [*(named | {text_of(c.get("name")): (c, place) for _, c in mappings(changes)}).values()]


def _known(value: Any) -> Any:
    """Return a value without the parts that parameters of the Workflow determine."""
    if isinstance(value, dict):
        return {k: _known(v) for k, v in value.items() if "{{" not in text_of(v)}
    return [_known(item) for item in value] if isinstance(value, list) else value
