"""The built-in kinds: their list, and the defaults, rules and columns of the simple ones."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from partita.validation.builtin_schemas import compiled_schemas
from partita.validation.field_errors import FieldError
from partita_testcluster.apiserver.claim_rules import (
    CLAIM_COLUMNS,
    SLICE_COLUMNS,
    check_claim,
    check_class,
    check_slice,
    check_template,
    prepare_claim,
    prepare_slice,
    prepare_template,
)
from partita_testcluster.apiserver.meta import amounts
from partita_testcluster.apiserver.pod_rules import POD_COLUMNS, check_pod, prepare_pod
from partita_testcluster.apiserver.resources import ServedResource, extractor
from partita_testcluster.apiserver.store import Store
from partita_testcluster.apiserver.tables import AGE, Column, age, compile_path
from partita_testcluster.apiserver.workload_rules import (
    DEPLOYMENT_COLUMNS,
    JOB_COLUMNS,
    REPLICA_SET_COLUMNS,
    SCALE,
    STATEFUL_SET_COLUMNS,
    check_workload,
    prepare_deployment,
    prepare_job,
    prepare_replica_set,
    prepare_stateful_set,
)

__all__ = ["builtin_resources"]


def _prepare_namespace(namespace: dict[str, Any], old: dict[str, Any] | None) -> None:
    meta = namespace["metadata"]
    meta.setdefault("labels", {})["kubernetes.io/metadata.name"] = meta["name"]
    if old is None:
        namespace["spec"] = {"finalizers": ["kubernetes"]}
        namespace["status"] = {"phase": "Active"}


def _prepare_node(node: dict[str, Any], _old: dict[str, Any] | None) -> None:
    node.setdefault("spec", {})
    for kind in {"capacity", "allocatable"} & node.get("status", {}).keys():
        node["status"][kind] = amounts(node["status"][kind])


def _prepare_secret(secret: dict[str, Any], _old: dict[str, Any] | None) -> None:
    secret.setdefault("type", "Opaque")
    for key, value in (secret.pop("stringData", None) or {}).items():
        secret.setdefault("data", {})[key] = base64.b64encode(value.encode()).decode()


def _prepare_budget(budget: dict[str, Any], old: dict[str, Any] | None) -> None:
    if old is None:
        counts = ("currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods")
        budget["status"] = dict.fromkeys(counts, 0)


def _or_none(name: str) -> Callable[[dict[str, Any]], list[Any]]:
    return lambda budget: [str(budget.get("spec", {}).get(name, "N/A"))]


def _check_event(event: dict[str, Any], _old: dict[str, Any] | None) -> list[FieldError]:
    about = event["involvedObject"].get("namespace", "")
    if (about or "default") == event["metadata"]["namespace"]:
        return []
    where = ("involvedObject", "namespace")
    return [FieldError(where, "Invalid value", "does not match event.namespace", about)]


def _node_status(node: dict[str, Any]) -> list[Any]:
    conditions = {c["type"]: c["status"] for c in node.get("status", {}).get("conditions", ())}
    words = [{"True": "Ready", "False": "NotReady"}.get(conditions.get("Ready", ""), "Unknown")]
    if node.get("spec", {}).get("unschedulable"):
        words.append("SchedulingDisabled")
    return [",".join(words)]


def _node_roles(node: dict[str, Any]) -> list[Any]:
    prefix = "node-role.kubernetes.io/"
    labels = node["metadata"].get("labels", {})
    return [",".join(sorted(k.removeprefix(prefix) for k in labels if k.startswith(prefix)))
            or "<none>"]  # fmt: skip


def _event_last_seen(event: dict[str, Any]) -> list[Any]:
    seen = (event.get("series") or {}).get("lastObservedTime") or event.get("lastTimestamp")
    return [age(seen or event.get("eventTime") or event["metadata"]["creationTimestamp"])]


def _event_object(event: dict[str, Any]) -> list[Any]:
    about = event.get("involvedObject", {})
    return [f"{about.get('kind', '').lower()}/{about.get('name', '')}"]


def _text(name: str, path: str, priority: int = 0) -> Column:
    return Column(name, "string", compile_path(path), priority)


def _count(name: str, *fields: str) -> Column:
    return Column(name, "integer", lambda o: [sum(len(o.get(f) or ()) for f in fields)])


_POD_FIELDS = ("spec.nodeName", "status.phase", "spec.restartPolicy", "spec.schedulerName",
               "spec.serviceAccountName", "status.podIP", "status.nominatedNodeName")  # fmt: skip
_EVENT_FIELDS = (
    *(f"involvedObject.{f}" for f in ("kind", "namespace", "name", "uid", "apiVersion",
                                      "resourceVersion", "fieldPath")),
    "reason", "reportingComponent", "source", "type",
)  # fmt: skip


def builtin_resources(store: Store) -> list[ServedResource]:
    """Return the built-in kinds, each with an empty collection."""
    schemas = compiled_schemas()

    def resource(plural: str, kind: str, group: str = "", **rest: Any) -> ServedResource:
        rest.setdefault("namespaced", True)
        rest.setdefault("columns", (AGE,))
        collection = store.collection(extractor(rest.get("selectable", ())))
        return ServedResource(
            group=group, version="v1", plural=plural, kind=kind, schema=schemas[kind],
            collection=collection, singular=kind.lower(), list_kind=kind + "List", **rest,
        )  # fmt: skip

    return [
        resource("namespaces", "Namespace", namespaced=False, short_names=("ns",),
                 subresources=frozenset({"status"}), selectable=("status.phase",),
                 prepare=_prepare_namespace, columns=(_text("Status", ".status.phase"), AGE)),
        resource("nodes", "Node", namespaced=False, short_names=("no",),
                 subresources=frozenset({"status"}), selectable=("spec.unschedulable",),
                 prepare=_prepare_node, columns=(
                     Column("Status", "string", _node_status),
                     Column("Roles", "string", _node_roles), AGE,
                     _text("Version", ".status.nodeInfo.kubeletVersion"))),
        resource("pods", "Pod", short_names=("po",), categories=("all",), selectable=_POD_FIELDS,
                 subresources=frozenset({"status", "binding", "eviction", "log"}),
                 prepare=prepare_pod, check=check_pod, generation=True, columns=POD_COLUMNS),
        resource("events", "Event", short_names=("ev",), selectable=_EVENT_FIELDS,
                 check=_check_event, columns=(
            Column("Last Seen", "string", _event_last_seen), _text("Type", ".type"),
            _text("Reason", ".reason"), Column("Object", "string", _event_object),
            _text("Source", ".source.component", 1), _text("Message", ".message"))),
        resource("configmaps", "ConfigMap", short_names=("cm",),
                 columns=(_count("Data", "data", "binaryData"), AGE)),
        resource("secrets", "Secret", selectable=("type",), prepare=_prepare_secret,
                 columns=(_text("Type", ".type"), _count("Data", "data"), AGE)),
        resource("serviceaccounts", "ServiceAccount", short_names=("sa",)),
        resource("leases", "Lease", "coordination.k8s.io", unconditional=False,
                 columns=(_text("Holder", ".spec.holderIdentity"), AGE)),
        resource("poddisruptionbudgets", "PodDisruptionBudget", "policy", short_names=("pdb",),
                 subresources=frozenset({"status"}), prepare=_prepare_budget, generation=True,
                 columns=(
                     Column("Min Available", "string", _or_none("minAvailable")),
                     Column("Max Unavailable", "string", _or_none("maxUnavailable")),
                     Column("Allowed Disruptions", "integer",
                            lambda o: [o["status"]["disruptionsAllowed"]]), AGE)),
        resource("customresourcedefinitions", "CustomResourceDefinition", "apiextensions.k8s.io",
                 namespaced=False, short_names=("crd", "crds"), categories=("api-extensions",),
                 subresources=frozenset({"status"}), generation=True, unconditional=False,
                 columns=(_text("Created At", ".metadata.creationTimestamp"),)),
        *_claim_kinds(resource),
        *_workload_kinds(resource),
    ]  # fmt: skip


def _claim_kinds(resource: Callable[..., ServedResource]) -> list[ServedResource]:
    """Return the kinds of `resource.k8s.io`."""
    group = "resource.k8s.io"
    return [
        resource("resourceclaims", "ResourceClaim", group, subresources=frozenset({"status"}),
                 prepare=prepare_claim, check=check_claim, columns=CLAIM_COLUMNS),
        resource("resourceclaimtemplates", "ResourceClaimTemplate", group,
                 prepare=prepare_template, check=check_template),
        resource("deviceclasses", "DeviceClass", group, namespaced=False, check=check_class,
                 generation=True),
        resource("resourceslices", "ResourceSlice", group, namespaced=False, generation=True,
                 selectable=("spec.nodeName", "spec.driver"), prepare=prepare_slice,
                 check=check_slice, columns=SLICE_COLUMNS),
    ]  # fmt: skip


def _workload_kinds(resource: Callable[..., ServedResource]) -> list[ServedResource]:
    """Return the kinds whose controllers create Pods."""
    status, scale = frozenset({"status"}), frozenset({"status", "scale"})
    common: dict[str, Any] = {"categories": ("all",), "generation": True}
    return [
        resource("deployments", "Deployment", "apps", short_names=("deploy",), subresources=scale,
                 prepare=prepare_deployment, check=check_workload, scale=SCALE,
                 columns=DEPLOYMENT_COLUMNS, **common),
        resource("replicasets", "ReplicaSet", "apps", short_names=("rs",), subresources=scale,
                 prepare=prepare_replica_set, check=check_workload, scale=SCALE,
                 columns=REPLICA_SET_COLUMNS, **common),
        resource("statefulsets", "StatefulSet", "apps", short_names=("sts",), subresources=scale,
                 prepare=prepare_stateful_set, check=check_workload, scale=SCALE,
                 columns=STATEFUL_SET_COLUMNS, **common),
        resource("jobs", "Job", "batch", subresources=status, prepare=prepare_job,
                 check=check_workload, columns=JOB_COLUMNS, **common),
    ]  # fmt: skip
