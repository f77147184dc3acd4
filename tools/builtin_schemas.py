"""Writes the schemas of Kubernetes' own kinds, from the OpenAPI documents in its source code.

Descriptions are left out, and the zero values that Go gives to every field.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from lock import ROOT

__all__ = ["main", "models"]

FILE: Final = ROOT / "operator/partita/validation/builtin_schemas.json"
SOURCE: Final = ROOT / "tests/apiserver/kubernetes"
"""The Go module with the Kubernetes that the tests run."""
KINDS: Final = {
    "api__v1": {"Namespace", "Node", "Pod", "Event", "ConfigMap", "Secret", "ServiceAccount"},
    "apis__apiextensions.k8s.io__v1": {"CustomResourceDefinition"},
    "apis__apps__v1": {"DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"},
    "apis__batch__v1": {"CronJob", "Job"},
    "apis__coordination.k8s.io__v1": {"Lease"},
    "apis__policy__v1": {"PodDisruptionBudget"},
    "apis__resource.k8s.io__v1": {
        "DeviceClass",
        "ResourceClaim",
        "ResourceClaimTemplate",
        "ResourceSlice",
    },
}
KINDS_KEY: Final = "x-kubernetes-group-version-kind"
INT_OR_STRING: Final = {"x-kubernetes-int-or-string": True}
QUANTITY: Final = {**INT_OR_STRING, "format": "quantity"}


def main() -> None:
    """Write the file, one model a line."""
    download = ["go", "mod", "download", "-json", "k8s.io/kubernetes"]
    module = subprocess.check_output(download, cwd=SOURCE)  # noqa: S603 - it is written above
    folder = Path(json.loads(module)["Dir"], "api/openapi-spec/v3")
    every: dict[str, Any] = {}
    for document, kinds in KINDS.items():
        text = (folder / f"{document}_openapi.json").read_text(encoding="utf-8")
        every |= models(json.loads(text)["components"]["schemas"], kinds)
    lines = (f"{json.dumps(name)}: {json.dumps(every[name])}" for name in sorted(every))
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def models(schemas: dict[str, Any], kinds: set[str]) -> dict[str, Any]:
    """Return the models of these kinds and all to which they refer, in the form of a CRD's."""
    pending = [
        name
        for name, schema in schemas.items()
        if {kind["kind"] for kind in schema.get(KINDS_KEY, ())} & kinds
    ]
    reduced: dict[str, Any] = {}
    while pending:
        name = pending.pop()
        if name not in reduced:
            reduced[name] = _reduced(schemas[name], schemas)
            pending += _references(reduced[name])
    return reduced


def _reduced(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    if "allOf" in schema:
        (schema,) = schema["allOf"]
    if "$ref" in schema:
        special: dict[str, dict[str, Any]] = {"Quantity": QUANTITY, "IntOrString": INT_OR_STRING}
        return special.get(schema["$ref"].rpartition(".")[2], schema)
    kept = {k: v for k, v in schema.items() if k != "description" and (k != "default" or v)}
    for key in ("items", "additionalProperties"):
        if key in kept:
            kept[key] = _reduced(kept[key], schemas)
    if "properties" in kept:
        kept["properties"] = {
            k: _reduced(v, schemas) | _zero(v, schemas) for k, v in kept["properties"].items()
        }
    elif kept.get("type", "object") == "object" and "additionalProperties" not in kept:
        kept["x-kubernetes-preserve-unknown-fields"] = True
    return kept


def _zero(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    """Return the default of a struct, which Go always has; {} would lack required fields."""
    if "allOf" not in schema or schema.get("default") != {}:
        return {}
    name = schema["allOf"][0]["$ref"].rpartition("/")[2]
    if "required" in schemas[name]:
        return {}
    return {"default": {}}


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(reference := value.get("$ref"), str):
            yield reference.rpartition("/")[2]
        for below in value.values():
            yield from _references(below)


if __name__ == "__main__":
    main()
