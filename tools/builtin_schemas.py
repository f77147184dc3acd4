"""Writes the schemas of Kubernetes' own kinds, from the OpenAPI documents in its source code.

Descriptions are left out, and the zero values that Go gives to every field. The documents lack the
defaults and forms of text that k8s.io/kubernetes v1.36.3 sets and checks in
``pkg/apis/*/v1/defaults.go`` and ``pkg/apis/*/validation``; those on which clients depend are
added.
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
DEFAULTS: Final = {
    "apps.v1.DeploymentSpec.progressDeadlineSeconds": 600,
    "apps.v1.DeploymentSpec.replicas": 1,
    "apps.v1.DeploymentSpec.revisionHistoryLimit": 10,
    "apps.v1.DeploymentStrategy.type": "RollingUpdate",
    "apps.v1.ReplicaSet.status": {},
    "apps.v1.ReplicaSetSpec.replicas": 1,
    "apps.v1.ReplicaSetStatus.replicas": 0,
    "apps.v1.StatefulSet.status": {},
    "apps.v1.StatefulSetPersistentVolumeClaimRetentionPolicy.whenDeleted": "Retain",
    "apps.v1.StatefulSetPersistentVolumeClaimRetentionPolicy.whenScaled": "Retain",
    "apps.v1.StatefulSetSpec.persistentVolumeClaimRetentionPolicy": {},
    "apps.v1.StatefulSetSpec.podManagementPolicy": "OrderedReady",
    "apps.v1.StatefulSetSpec.replicas": 1,
    "apps.v1.StatefulSetSpec.revisionHistoryLimit": 10,
    "apps.v1.StatefulSetStatus.availableReplicas": 0,
    "apps.v1.StatefulSetStatus.replicas": 0,
    "apps.v1.StatefulSetUpdateStrategy.type": "RollingUpdate",
    "batch.v1.JobSpec.backoffLimit": 6,
    "batch.v1.JobSpec.completionMode": "NonIndexed",
    "batch.v1.JobSpec.manualSelector": False,
    "batch.v1.JobSpec.suspend": False,
    "batch.v1.PodFailurePolicyOnPodConditionsPattern.status": "True",
    "core.v1.Container.terminationMessagePath": "/dev/termination-log",
    "core.v1.Container.terminationMessagePolicy": "File",
    "core.v1.NamespaceSpec.finalizers": ["kubernetes"],
    "core.v1.NamespaceStatus.phase": "Active",
    "core.v1.Pod.spec": {},
    "core.v1.PodSpec.dnsPolicy": "ClusterFirst",
    "core.v1.PodSpec.restartPolicy": "Always",
    "core.v1.PodSpec.schedulerName": "default-scheduler",
    "core.v1.PodSpec.securityContext": {},
    "core.v1.PodSpec.terminationGracePeriodSeconds": 30,
    "core.v1.PodStatus.phase": "Pending",
    "core.v1.PodTemplateSpec.spec": {},
    "core.v1.Secret.type": "Opaque",
    "policy.v1.PodDisruptionBudgetStatus.currentHealthy": 0,
    "policy.v1.PodDisruptionBudgetStatus.desiredHealthy": 0,
    "policy.v1.PodDisruptionBudgetStatus.disruptionsAllowed": 0,
    "policy.v1.PodDisruptionBudgetStatus.expectedPods": 0,
    "resource.v1.DeviceSubRequest.allocationMode": "ExactCount",
    "resource.v1.ExactDeviceRequest.allocationMode": "ExactCount",
    "resource.v1.ResourceClaimTemplate.spec": {},
}
ENUMS: Final = {
    "core.v1.PodSpec.restartPolicy": ["Always", "OnFailure", "Never"],
    "resource.v1.DeviceAllocationConfiguration.source": ["FromClaim", "FromClass"],
    "resource.v1.DeviceSubRequest.allocationMode": ["All", "ExactCount"],
    "resource.v1.DeviceTaint.effect": ["NoExecute", "NoSchedule", "None"],
    "resource.v1.ExactDeviceRequest.allocationMode": ["All", "ExactCount"],
}
FORMATS: Final = {
    "core.v1.Container.name": "k8s-short-name",
    "core.v1.PodResourceClaim.name": "k8s-short-name",
    "core.v1.PodResourceClaim.resourceClaimName": "k8s-long-name",
    "core.v1.PodResourceClaim.resourceClaimTemplateName": "k8s-long-name",
    "resource.v1.Device.name": "k8s-short-name",
    "resource.v1.DeviceRequest.name": "k8s-short-name",
    "resource.v1.DeviceRequestAllocationResult.device": "k8s-short-name",
    "resource.v1.DeviceRequestAllocationResult.driver": "k8s-long-name",
    "resource.v1.DeviceRequestAllocationResult.pool": "k8s-resource-pool-name",
    "resource.v1.DeviceRequestAllocationResult.shareID": "k8s-uuid",
    "resource.v1.DeviceSubRequest.deviceClassName": "k8s-long-name",
    "resource.v1.DeviceSubRequest.name": "k8s-short-name",
    "resource.v1.ExactDeviceRequest.deviceClassName": "k8s-long-name",
    "resource.v1.OpaqueDeviceConfiguration.driver": "k8s-long-name",
    "resource.v1.ResourceSliceSpec.driver": "k8s-long-name",
}
REQUIRED: Final = (
    "core.v1.Container.image",
    "resource.v1.DeviceAllocationConfiguration.opaque",
    "resource.v1.DeviceClaimConfiguration.opaque",
    "resource.v1.DeviceClassConfiguration.opaque",
    "resource.v1.DeviceSelector.cel",
)


def main() -> None:
    """Write the file, one model a line."""
    download = ["go", "mod", "download", "-json", "k8s.io/kubernetes"]
    module = subprocess.check_output(download, cwd=SOURCE)  # noqa: S603 - it is written above
    folder = Path(json.loads(module)["Dir"], "api/openapi-spec/v3")
    every: dict[str, Any] = {}
    for document, kinds in KINDS.items():
        text = (folder / f"{document}_openapi.json").read_text(encoding="utf-8")
        every |= models(json.loads(text)["components"]["schemas"], kinds)
    _complete(every)
    lines = (f"{json.dumps(name)}: {json.dumps(every[name])}" for name in sorted(every))
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def _complete(every: dict[str, Any]) -> None:
    for keyword, added in (("default", DEFAULTS), ("enum", ENUMS), ("format", FORMATS)):
        for place, value in added.items():
            model, _, field = place.rpartition(".")
            every[f"io.k8s.api.{model}"]["properties"][field][keyword] = value
    for place in REQUIRED:
        model, _, field = place.rpartition(".")
        every[f"io.k8s.api.{model}"].setdefault("required", []).append(field)


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
