"""The CustomResourceDefinitions, generated from the models."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from partita.constants import GROUP, VERSION
from partita.models.base import Resource
from partita.models.job import SharedGPUJob
from partita.models.partition import GPUPartition
from partita.models.profile import ApplicationProfile
from partita.models.server import GPUServer

__all__ = ["RESOURCES", "CustomResource", "crds", "file_name", "render", "write"]

_HEADER = "# Generated from operator/partita/models by `make crds`; do not edit.\n"
_DROPPED = {"title", "$defs"}
_EXCLUSIVE = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}


@dataclass(frozen=True, slots=True)
class CustomResource:
    """What a CRD says beside the schema."""

    model: type[Resource]
    plural: str
    short: str
    namespaced: bool
    columns: tuple[tuple[str, str, str, int], ...]
    """Printer columns: name, type, JSONPath, priority (1 shows with `-o wide`)."""
    scale: dict[str, str] | None = None

    @property
    def kind(self) -> str:
        """The resource's kind."""
        return self.model.__name__

    @property
    def has_status(self) -> bool:
        """Whether it has a status subresource."""
        return "status" in self.model.model_fields


RESOURCES = (
    CustomResource(
        GPUPartition,
        "gpupartitions",
        "gpart",
        namespaced=False,
        columns=(
            ("GPUs", "integer", ".spec.gpus", 0),
            ("Ready", "integer", ".status.gpus", 0),
            ("Mode", "string", ".spec.sharing.mode", 0),
            ("Policy", "string", ".status.policy.active", 0),
            ("Memory", "string", ".status.capacity.memory", 0),
            ("Allocated", "string", ".status.allocated.memory", 0),
            ("Running", "integer", ".status.queue.running", 0),
            ("Queued", "integer", ".status.queue.queued", 0),
            ("State", "string", '.status.conditions[?(@.type=="Ready")].reason', 0),
            ("Why", "string", '.status.conditions[?(@.type=="Ready")].message', 1),
            ("Age", "date", ".metadata.creationTimestamp", 0),
        ),
        scale={"specReplicasPath": ".spec.gpus", "statusReplicasPath": ".status.gpus"},
    ),
    CustomResource(
        SharedGPUJob,
        "sharedgpujobs",
        "sgj",
        namespaced=True,
        columns=(
            ("Partition", "string", ".spec.partition", 0),
            ("Phase", "string", ".status.phase", 0),
            ("Reason", "string", ".status.reason", 0),
            ("Position", "integer", ".status.queuePosition", 0),
            ("Memory", "string", ".status.assignment.memory", 0),
            ("Server", "string", ".status.assignment.servers[0]", 0),
            ("Application", "string", ".spec.application", 1),
            ("Priority", "integer", ".spec.priority", 1),
            ("Message", "string", ".status.message", 1),
            ("Age", "date", ".metadata.creationTimestamp", 0),
        ),
    ),
    CustomResource(
        GPUServer,
        "gpuservers",
        "gsrv",
        namespaced=False,
        columns=(
            ("Partition", "string", ".spec.partition", 0),
            ("Node", "string", ".status.node", 0),
            ("Product", "string", ".status.product", 0),
            ("Memory", "string", ".status.memory", 0),
            ("Mode", "string", ".spec.mode", 0),
            ("Ready", "string", '.status.conditions[?(@.type=="Ready")].status', 0),
            ("Reason", "string", '.status.conditions[?(@.type=="Ready")].reason', 0),
            ("Utilization", "integer", ".status.usage.gpuUtilization", 1),
            ("UUID", "string", ".status.uuid", 1),
            ("Age", "date", ".metadata.creationTimestamp", 0),
        ),
    ),
    CustomResource(
        ApplicationProfile,
        "applicationprofiles",
        "aprof",
        namespaced=True,
        columns=(
            ("Application", "string", ".spec.application", 0),
            ("Type", "string", ".spec.type", 0),
            ("Product", "string", ".spec.measurements[0].environment.product", 0),
            ("Duration", "string", ".spec.measurements[0].duration", 0),
            ("Runs", "integer", ".spec.measurements[0].runs", 0),
            ("Age", "date", ".metadata.creationTimestamp", 0),
        ),
    ),
)


def _structural(node: Any, definitions: dict[str, Any]) -> Any:
    """Rewrite pydantic's JSON schema as a structural schema.

    References are put in place, `null` alternatives and titles go, and free-form maps keep
    their content.
    """
    if isinstance(node, list):
        return [_structural(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        target = definitions[node["$ref"].rsplit("/", 1)[1]]
        return _structural(
            {**target, **{k: v for k, v in node.items() if k != "$ref"}}, definitions
        )
    if "allOf" in node and len(node["allOf"]) == 1:
        rest = {k: v for k, v in node.items() if k != "allOf"}
        return _structural({**node["allOf"][0], **rest}, definitions)
    if "anyOf" in node and not node.get("x-kubernetes-int-or-string"):
        kept = [option for option in node["anyOf"] if option != {"type": "null"}]
        if len(kept) == 1:
            rest = {k: v for k, v in node.items() if k != "anyOf"}
            if rest.get("default", 0) is None:
                del rest["default"]
            return _structural({**kept[0], **rest}, definitions)
    result = {}
    for key, value in node.items():
        if key in _DROPPED:
            continue
        if key == "properties":
            result[key] = {name: _structural(item, definitions) for name, item in value.items()}
        elif key in _EXCLUSIVE:
            result[_EXCLUSIVE[key]] = value
            result[key] = True
        elif key == "additionalProperties" and value is True:
            result["x-kubernetes-preserve-unknown-fields"] = True
        elif key == "default" or key.startswith("x-") or key == "enum":
            result[key] = value
        else:
            result[key] = _structural(value, definitions)
    if "maxLength" in result and result.get("type") in {"array", "object"}:
        # pydantic counts a map's entries and a list's items as a length.
        result["maxItems" if result["type"] == "array" else "maxProperties"] = result.pop(
            "maxLength"
        )
    if "description" in result:
        result["description"] = " ".join(str(result["description"]).split())
    return result


def _schema(resource: CustomResource) -> dict[str, Any]:
    raw = resource.model.model_json_schema(by_alias=True, mode="serialization")
    definitions = raw.get("$defs", {})
    schema: dict[str, Any] = _structural(raw, definitions)
    properties = schema["properties"]
    properties["metadata"] = {"type": "object"}
    if resource.has_status:
        # The API server applies defaults on each write; an absent status stays absent.
        properties["status"].pop("default", None)
    _drop_status_defaults(properties.get("status", {}))
    _require_only_what_must_be_written(schema)
    return {
        "type": "object",
        "description": schema.get("description", ""),
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": "The version of this form."},
            "kind": {"type": "string", "description": "The kind of the object."},
            **properties,
        },
        **{k: v for k, v in schema.items() if k.startswith("x-")},
    }


def _drop_status_defaults(node: Any) -> None:
    """Remove defaults from what the software writes: unset must stay unset."""
    if isinstance(node, dict):
        node.pop("default", None)
        for value in node.values():
            _drop_status_defaults(value)
    elif isinstance(node, list):
        for value in node:
            _drop_status_defaults(value)


def _require_only_what_must_be_written(node: Any) -> None:
    """Keep `required` for fields without a default (serialisation mode lists all)."""
    if isinstance(node, dict):
        properties = node.get("properties")
        if isinstance(properties, dict) and isinstance(node.get("required"), list):
            required = [n for n in node["required"] if "default" not in properties.get(n, {})]
            if required:
                node["required"] = required
            else:
                del node["required"]
        for value in node.values():
            _require_only_what_must_be_written(value)
    elif isinstance(node, list):
        for value in node:
            _require_only_what_must_be_written(value)


def crds() -> list[dict[str, Any]]:
    """Return the four CustomResourceDefinitions."""
    return [_crd(resource) for resource in RESOURCES]


def _crd(resource: CustomResource) -> dict[str, Any]:
    subresources: dict[str, Any] = {"status": {}} if resource.has_status else {}
    if resource.scale:
        subresources["scale"] = resource.scale
    columns = []
    for name, kind, path, priority in resource.columns:
        column: dict[str, Any] = {"name": name, "type": kind, "jsonPath": path}
        if priority:
            column["priority"] = priority
        columns.append(column)
    version: dict[str, Any] = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": columns,
        "schema": {"openAPIV3Schema": _schema(resource)},
    }
    if subresources:
        version["subresources"] = subresources
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "plural": resource.plural,
                "singular": resource.kind.lower(),
                "shortNames": [resource.short],
                "categories": ["partita"],
            },
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "versions": [version],
        },
    }


def file_name(crd: dict[str, Any]) -> str:
    """Name of the file that holds this CRD."""
    return f"{GROUP}_{crd['spec']['names']['plural']}.yaml"


def render(crd: dict[str, Any]) -> str:
    """Write a CRD as YAML."""
    return _HEADER + yaml.safe_dump(crd, sort_keys=False, width=100, allow_unicode=True)


def write(folder: Path) -> list[Path]:
    """Write all CRDs into a folder; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for crd in crds():
        path = folder / file_name(crd)
        path.write_text(render(crd), encoding="utf-8")
        files.append(path)
    return files
