"""The built-in kinds that the server serves."""

from __future__ import annotations

from typing import Any, Final

from partita.validation.kinds import builtin_kinds
from partita_testcluster.apiserver.columns import COLUMNS
from partita_testcluster.apiserver.resources import ServedResource, extractor
from partita_testcluster.apiserver.store import Store
from partita_testcluster.apiserver.tables import AGE

__all__ = ["builtin_resources"]

_POD_FIELDS: Final = (
    "spec.nodeName", "status.phase", "spec.restartPolicy", "spec.schedulerName",
    "spec.serviceAccountName", "status.podIP", "status.nominatedNodeName",
)  # fmt: skip
_EVENT_FIELDS: Final = (
    *(f"involvedObject.{f}" for f in ("kind", "namespace", "name", "uid", "apiVersion",
                                      "resourceVersion", "fieldPath")),
    "reason", "reportingComponent", "source", "type",
)  # fmt: skip
_STATUS: Final = frozenset({"status"})
_CLUSTER: Final[dict[str, Any]] = {"namespaced": False}
_WORKLOAD: Final[dict[str, Any]] = {
    "subresources": _STATUS, "generation": True, "categories": ("all",),
}  # fmt: skip
_SCALED: Final[dict[str, Any]] = {
    **_WORKLOAD,
    "subresources": frozenset({"status", "scale"}),
    "scale": {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".spec.selector",
    },
}
_DYNAMIC: Final = "resource.k8s.io"
_KINDS: Final[tuple[tuple[str, str, str, dict[str, Any]], ...]] = (
    ("", "namespaces", "Namespace", _CLUSTER | {
        "short_names": ("ns",), "subresources": _STATUS, "selectable": ("status.phase",)}),
    ("", "nodes", "Node", _CLUSTER | {
        "short_names": ("no",), "subresources": _STATUS, "selectable": ("spec.unschedulable",)}),
    ("", "pods", "Pod", {
        "short_names": ("po",), "categories": ("all",), "selectable": _POD_FIELDS,
        "subresources": frozenset({"status", "binding", "eviction", "log"}), "generation": True}),
    ("", "events", "Event", {"short_names": ("ev",), "selectable": _EVENT_FIELDS}),
    ("", "configmaps", "ConfigMap", {"short_names": ("cm",)}),
    ("", "secrets", "Secret", {"selectable": ("type",)}),
    ("", "serviceaccounts", "ServiceAccount", {"short_names": ("sa",)}),
    ("coordination.k8s.io", "leases", "Lease", {"unconditional": False}),
    ("policy", "poddisruptionbudgets", "PodDisruptionBudget", {
        "short_names": ("pdb",), "subresources": _STATUS, "generation": True}),
    ("apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition", _CLUSTER | {
        "short_names": ("crd", "crds"), "categories": ("api-extensions",),
        "subresources": _STATUS, "generation": True, "unconditional": False}),
    (_DYNAMIC, "resourceclaims", "ResourceClaim", {"subresources": _STATUS}),
    (_DYNAMIC, "resourceclaimtemplates", "ResourceClaimTemplate", {}),
    (_DYNAMIC, "deviceclasses", "DeviceClass", _CLUSTER | {"generation": True}),
    (_DYNAMIC, "resourceslices", "ResourceSlice", _CLUSTER | {
        "generation": True, "selectable": ("spec.nodeName", "spec.driver")}),
    ("apps", "deployments", "Deployment", _SCALED | {"short_names": ("deploy",)}),
    ("apps", "replicasets", "ReplicaSet", _SCALED | {"short_names": ("rs",)}),
    ("apps", "statefulsets", "StatefulSet", _SCALED | {"short_names": ("sts",)}),
    ("batch", "jobs", "Job", _WORKLOAD),
)  # fmt: skip
"""Group, plural and kind, and what differs from the defaults of `ServedResource`."""


def builtin_resources(store: Store) -> list[ServedResource]:
    """Return the built-in kinds, each with an empty collection."""
    return [
        ServedResource(
            group=group,
            version="v1",
            plural=plural,
            kind=kind,
            rules=builtin_kinds()[f"{group}/v1".removeprefix("/"), kind],
            collection=store.collection(extractor(rest.get("selectable", ()))),
            singular=kind.lower(),
            list_kind=f"{kind}List",
            columns=COLUMNS.get(kind, (AGE,)),
            **rest,
        )
        for group, plural, kind, rest in _KINDS
    ]
