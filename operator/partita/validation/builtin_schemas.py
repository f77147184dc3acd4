"""The schemas of Kubernetes' own kinds.

They are in `builtin_schemas.json`, which ``make schemas`` writes from the OpenAPI documents of
Kubernetes. These lack the defaults and forms of text that k8s.io/kubernetes v1.36.3 sets and checks
in ``pkg/apis/*/v1/defaults.go`` and ``pkg/apis/*/validation``; those on which clients depend are
added here.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any, Final

import orjson

from partita.validation.schema import Compiler, Schema, with_type_meta

__all__ = ["compiled_schemas", "schemas"]

_KINDS: Final = "x-kubernetes-group-version-kind"
_DEFAULTS: Final = {
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
_ENUMS: Final = {
    "core.v1.PodSpec.restartPolicy": ["Always", "OnFailure", "Never"],
    "resource.v1.DeviceAllocationConfiguration.source": ["FromClaim", "FromClass"],
    "resource.v1.DeviceSubRequest.allocationMode": ["All", "ExactCount"],
    "resource.v1.DeviceTaint.effect": ["NoExecute", "NoSchedule", "None"],
    "resource.v1.ExactDeviceRequest.allocationMode": ["All", "ExactCount"],
}
_FORMATS: Final = {
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
_REQUIRED: Final = (
    "core.v1.Container.image",
    "resource.v1.DeviceAllocationConfiguration.opaque",
    "resource.v1.DeviceClaimConfiguration.opaque",
    "resource.v1.DeviceClassConfiguration.opaque",
    "resource.v1.DeviceSelector.cel",
)


@cache
def schemas() -> dict[str, dict[str, Any]]:
    """Return the schemas of the kinds and of all models to which they refer, by model name."""
    models: dict[str, dict[str, Any]] = orjson.loads(
        files("partita.validation").joinpath("builtin_schemas.json").read_bytes()
    )
    for keyword, added in (("default", _DEFAULTS), ("enum", _ENUMS), ("format", _FORMATS)):
        for place, value in added.items():
            model, _, field = place.rpartition(".")
            models[f"io.k8s.api.{model}"]["properties"][field][keyword] = value
    for place in _REQUIRED:
        model, _, field = place.rpartition(".")
        models[f"io.k8s.api.{model}"].setdefault("required", []).append(field)
    return models


@cache
def compiled_schemas() -> dict[tuple[str, str], Schema]:
    """Return the compiled schema of each kind, by its apiVersion and its name."""
    models = schemas()
    compiler = Compiler(models)
    return {
        (f"{kind['group']}/{kind['version']}".removeprefix("/"), kind["kind"]): compiler.compile(
            with_type_meta(model)
        )
        for model in models.values()
        for kind in model.get(_KINDS, ())
    }
