"""The CustomResourceDefinitions, generated from the models."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from partita.constants import GROUP, VERSION
from partita.models.base import Resource
from partita.models.gpu_server import GPUServer
from partita.models.job import SharedGPUJob
from partita.models.partition import GPUPartition
from partita.models.profile import ApplicationProfile
from partita.models.structural_schema import Schema, structural_schema, without_defaults

__all__ = ["RESOURCES", "CustomResource", "crd_of", "crds", "file_name", "render", "write"]

_HEADER = "# Generated from operator/partita/models by `make crds`; do not edit.\n"


@dataclass(frozen=True, slots=True)
class CustomResource:
    """Settings of a CRD in addition to its schema."""

    model: type[Resource]
    plural: str
    short: str
    namespaced: bool
    columns: tuple[tuple[str, str, str, int], ...]
    """Printer columns: name, type, JSONPath, priority (1 is shown only with `-o wide`)."""
    scale: dict[str, str] | None = None

    @property
    def kind(self) -> str:
        """The kind of the resource."""
        return self.model.__name__

    @property
    def definition(self) -> str:
        """Name of its CRD."""
        return f"{self.plural}.{GROUP}"

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
            ("Objective", "string", ".spec.objective", 1),
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
            ("Starts", "string", ".status.estimatedStart.latest", 0),
            ("Requested", "string", ".spec.gpuMemory", 0),
            ("Allocated", "string", ".status.assignment.memory", 0),
            ("Server", "string", ".status.assignment.servers[0]", 0),
            ("Node", "string", ".status.assignment.node", 1),
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
            ("Used", "string", ".status.usage.memory", 0),
            ("Busy%", "integer", ".status.usage.gpuUtilization", 0),
            ("Ready", "string", '.status.conditions[?(@.type=="Ready")].status', 0),
            ("Reason", "string", '.status.conditions[?(@.type=="Ready")].reason', 0),
            ("Mode", "string", ".spec.mode", 1),
            ("Enforcement", "string", ".status.enforcement", 1),
            ("MPS", "string", ".status.mps.state", 1),
            ("Clients", "integer", ".status.mps.clients", 1),
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


def _schema(resource: CustomResource) -> Schema:
    schema = structural_schema(resource.model)
    properties = schema["properties"] | {"metadata": {"type": "object"}}
    if resource.has_status:
        properties["status"] = without_defaults(properties["status"])
    return schema | {
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": f"Always {GROUP}/{VERSION}."},
            "kind": {"type": "string", "description": f"Always {resource.kind}."},
            **properties,
        },
    }


def crds() -> list[dict[str, Any]]:
    """Return the four CustomResourceDefinitions."""
    return [crd_of(resource) for resource in RESOURCES]


def crd_of(resource: CustomResource) -> dict[str, Any]:
    """Return the CustomResourceDefinition of one kind."""
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
        "metadata": {"name": resource.definition},
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
    """Return the name of the file that contains this CRD."""
    return f"{GROUP}_{crd['spec']['names']['plural']}.yaml"


def render(crd: dict[str, Any]) -> str:
    """Return a CRD as YAML."""
    return _HEADER + yaml.safe_dump(crd, sort_keys=False, width=100, allow_unicode=True)


def write(folder: Path) -> list[Path]:
    """Write all CRDs to a folder and return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for crd in crds():
        path = folder / file_name(crd)
        path.write_text(render(crd), encoding="utf-8")
        files.append(path)
    return files
