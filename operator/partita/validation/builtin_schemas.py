"""The schemas of the built-in kinds.

They are read from the models of the `kubernetes` package, which are generated from Kubernetes'
own OpenAPI. Importing the models takes seconds, so their types are stored in the user's cache
folder, in one file for each version of the package. The models do not contain the keys of lists.
These are in `_LISTS`, from the ``patchMergeKey`` and ``listMapKey`` markers in k8s.io/api.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import orjson

from partita.validation.schema import Compiler, Schema, with_type_meta

__all__ = ["compiled_schemas", "generate", "schemas"]

_LISTS: dict[tuple[str, str], tuple[str, ...]] = {
    ("V1PodSpec", "containers"): ("name",),
    ("V1PodSpec", "initContainers"): ("name",),
    ("V1PodSpec", "volumes"): ("name",),
    ("V1PodSpec", "imagePullSecrets"): ("name",),
    ("V1PodSpec", "resourceClaims"): ("name",),
    ("V1PodSpec", "schedulingGates"): ("name",),
    ("V1Container", "env"): ("name",),
    ("V1Container", "ports"): ("containerPort", "protocol"),
    ("V1Container", "volumeMounts"): ("mountPath",),
    ("V1PodStatus", "conditions"): ("type",),
    ("V1PodStatus", "podIPs"): ("ip",),
    ("V1PodStatus", "resourceClaimStatuses"): ("name",),
    ("V1NodeStatus", "conditions"): ("type",),
    ("V1NodeStatus", "addresses"): ("type",),
    ("V1NamespaceStatus", "conditions"): ("type",),
    ("V1ServiceAccount", "secrets"): ("name",),
    ("V1CustomResourceDefinitionStatus", "conditions"): ("type",),
    ("V1DeploymentStatus", "conditions"): ("type",),
    ("V1ReplicaSetStatus", "conditions"): ("type",),
    ("V1StatefulSetStatus", "conditions"): ("type",),
    ("V1ResourceClaimStatus", "reservedFor"): ("uid",),
    ("V1ResourceClaimStatus", "devices"): ("driver", "device", "pool", "shareID"),
}
_ATOMIC = frozenset(
    {"V1LabelSelector", "V1SecretKeySelector", "V1ConfigMapKeySelector", "V1ObjectFieldSelector",
     "V1ResourceFieldSelector", "V1ObjectReference", "V1LocalObjectReference", "V1NodeSelector",
     "V1NodeSelectorTerm"}
)  # fmt: skip
# Fields of quantities, which may also be numbers.
_QUANTITIES = frozenset({"limits", "requests", "capacity", "allocatable", "overhead", "sizeLimit",
                         "divisor", "allocatedResources", "consumedCapacity"})  # fmt: skip
_PLAIN: dict[str, dict[str, Any]] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "datetime": {"type": "string", "format": "date-time"},
    "bytes": {"type": "string", "format": "byte"},
    "object": {"x-kubernetes-preserve-unknown-fields": True},
}
_MODELS = {
    "Namespace": "V1Namespace", "Node": "V1Node", "Pod": "V1Pod", "Event": "CoreV1Event",
    "ConfigMap": "V1ConfigMap", "Secret": "V1Secret", "ServiceAccount": "V1ServiceAccount",
    "Lease": "V1Lease", "CustomResourceDefinition": "V1CustomResourceDefinition",
    "PodDisruptionBudget": "V1PodDisruptionBudget",
    "ResourceClaim": "ResourceV1ResourceClaim", "ResourceClaimTemplate": "V1ResourceClaimTemplate",
    "DeviceClass": "V1DeviceClass", "ResourceSlice": "V1ResourceSlice",
    "Deployment": "V1Deployment", "ReplicaSet": "V1ReplicaSet", "StatefulSet": "V1StatefulSet",
    "Job": "V1Job",
}  # fmt: skip


def generate() -> dict[str, dict[str, Any]]:
    """Generate the schemas of the built-in kinds and of all models they refer to, by model name."""
    from kubernetes.aio.client import models  # noqa: PLC0415 - seconds, and only for generating

    out: dict[str, dict[str, Any]] = {}

    def visit(name: str) -> None:
        if name in out:
            return
        model = getattr(models, name)
        schema: dict[str, Any] = {"type": "object", "properties": {}}
        out[name] = schema
        required = {
            f.serialization_alias or n for n, f in model.model_fields.items() if f.is_required()
        }
        for attribute, declared in model.openapi_types.items():
            key = model.attribute_map[attribute]
            below = _of_type(declared, key, visit)
            if keys := _LISTS.get((name, key)):
                below["x-kubernetes-list-type"] = "map"
                below["x-kubernetes-list-map-keys"] = list(keys)
                # kubectl uses these to compute a strategic merge patch.
                below["x-kubernetes-patch-merge-key"] = keys[0]
                below["x-kubernetes-patch-strategy"] = "merge"
            schema["properties"][key] = below
            if key in required:
                schema.setdefault("required", []).append(key)
        if name in _ATOMIC:
            schema["x-kubernetes-map-type"] = "atomic"

    for name in _MODELS.values():
        visit(name)
    out["V1ContainerPort"]["properties"]["protocol"]["default"] = "TCP"
    return out


def _of_type(declared: str, key: str, visit: Callable[[str], None]) -> dict[str, Any]:
    if match := re.fullmatch(r"List\[(.*)\]", declared):
        return {"type": "array", "items": _of_type(match[1], key, visit)}
    if match := re.fullmatch(r"Dict\[str, (.*)\]", declared):
        return {"type": "object", "additionalProperties": _of_type(match[1], key, visit)}
    if declared == "str" and key in _QUANTITIES:
        return {"x-kubernetes-int-or-string": True}
    if declared in _PLAIN:
        return dict(_PLAIN[declared])
    visit(declared)
    return {"$ref": f"#/components/schemas/{declared}"}


@cache
def schemas() -> dict[str, dict[str, Any]]:
    """Return the schemas of `generate`, from the cache if possible."""
    file = _cache_file()
    try:
        return dict(orjson.loads(file.read_bytes()))
    except (OSError, orjson.JSONDecodeError):
        made = generate()
    # If the cache cannot be written, only the next start is slower.
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=file.parent, delete=False) as part:
            part.write(orjson.dumps(made))
        Path(part.name).replace(file)
    return made


def _cache_file() -> Path:
    """Return the cache file for this version of the package and of this module."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    ours = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]
    return root / "partita" / f"builtin-schemas-{version('kubernetes')}-{ours}.json"


@cache
def compiled_schemas() -> dict[str, Schema]:
    """Return the compiled schema of each built-in kind."""
    raw = schemas()
    compiler = Compiler(raw)
    return {kind: compiler.compile(with_type_meta(raw[name])) for kind, name in _MODELS.items()}
