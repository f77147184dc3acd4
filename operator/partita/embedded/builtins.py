"""The built-in kinds: their schemas, defaults, rules and columns.

Schemas are read from the models of the `kubernetes` package, which are generated from
Kubernetes' own OpenAPI; what those leave out (which lists are keyed) is in `_LISTS`, from the
``patchMergeKey`` and ``listMapKey`` markers in k8s.io/api.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

from partita.embedded.cel import parse_quantity
from partita.embedded.errors import FieldError, bad_request
from partita.embedded.meta import check_label
from partita.embedded.resources import Resource, extractor
from partita.embedded.schema import Schema, with_type_meta
from partita.embedded.store import Store
from partita.embedded.tables import AGE, Column, age, compile_path

__all__ = ["builtin_resources", "load_schemas", "models_schema"]

_LISTS: dict[tuple[str, str], tuple[str, ...]] = {
    ("V1PodSpec", "containers"): ("name",),
    ("V1PodSpec", "initContainers"): ("name",),
    ("V1PodSpec", "ephemeralContainers"): ("name",),
    ("V1PodSpec", "volumes"): ("name",),
    ("V1PodSpec", "imagePullSecrets"): ("name",),
    ("V1PodSpec", "hostAliases"): ("ip",),
    ("V1PodSpec", "schedulingGates"): ("name",),
    ("V1PodSpec", "resourceClaims"): ("name",),
    ("V1PodSpec", "topologySpreadConstraints"): ("topologyKey", "whenUnsatisfiable"),
    ("V1Container", "env"): ("name",),
    ("V1Container", "ports"): ("containerPort", "protocol"),
    ("V1Container", "volumeMounts"): ("mountPath",),
    ("V1Container", "volumeDevices"): ("devicePath",),
    ("V1PodStatus", "conditions"): ("type",),
    ("V1PodStatus", "podIPs"): ("ip",),
    ("V1NodeStatus", "conditions"): ("type",),
    ("V1NodeStatus", "addresses"): ("type",),
    ("V1NamespaceStatus", "conditions"): ("type",),
    ("V1ServiceAccount", "secrets"): ("name",),
    ("V1CustomResourceDefinitionStatus", "conditions"): ("type",),
}
_ATOMIC = frozenset(
    {"V1LabelSelector", "V1SecretKeySelector", "V1ConfigMapKeySelector", "V1ObjectFieldSelector",
     "V1ResourceFieldSelector", "V1ObjectReference", "V1LocalObjectReference", "V1NodeSelector",
     "V1NodeSelectorTerm"}
)  # fmt: skip
# Fields of quantities, which may be written as numbers too.
_QUANTITIES = frozenset({"limits", "requests", "capacity", "allocatable", "overhead", "sizeLimit",
                         "divisor", "allocatedResources"})  # fmt: skip
_PLAIN = {
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
}  # fmt: skip


@cache
def models_schema() -> dict[str, dict[str, Any]]:
    """Return the OpenAPI schemas of the built-in kinds and all they refer to, by model name."""
    from kubernetes.aio.client import models  # noqa: PLC0415 - a second; see load_schemas

    out: dict[str, dict[str, Any]] = {}

    def visit(name: str) -> None:
        if name in out:
            return
        model = getattr(models, name)
        out[name] = schema = {"type": "object", "properties": {}}
        by_json = {f.serialization_alias or n: f for n, f in model.model_fields.items()}
        for attribute, declared in model.openapi_types.items():
            key = model.attribute_map[attribute]
            below = _of_type(declared, key, visit)
            info = by_json.get(key)
            if info is not None and info.description:
                reference = "$ref" in below
                below = {"allOf": [below]} if reference else dict(below)
                below["description"] = info.description
            if keys := _LISTS.get((name, key)):
                below["x-kubernetes-list-type"] = "map"
                below["x-kubernetes-list-map-keys"] = list(keys)
            schema["properties"][key] = below
            if info is not None and info.is_required():
                schema.setdefault("required", []).append(key)
        if name in _ATOMIC:
            schema["x-kubernetes-map-type"] = "atomic"
        schema["description"] = (model.__doc__ or "").partition("Attributes:")[0].strip()

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
def load_schemas() -> dict[str, Schema]:
    """Return the compiled schema of each built-in kind.

    The first call in a process takes about a second, if nothing has imported the models yet.
    """
    raw = models_schema()
    done: dict[str, Schema] = {}
    return {
        kind: Schema.compile_model(with_type_meta(raw[name]), raw, done)
        for kind, name in _MODELS.items()
    }


# -- Pods -------------------------------------------------------------------------------------

# k8s.io/kubernetes, pkg/apis/core/v1/defaults.go
_POD_DEFAULTS = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "enableServiceLinks": True,
    "securityContext": {},
}
_CONTAINER_DEFAULTS = {
    "resources": {},
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
_MUTABLE_IN_POD = ("activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds")


def _amounts(quantities: dict[str, Any]) -> dict[str, str]:
    """Return quantities as text; a number is one as well.

    Raises
    ------
    APIError
        400 where one is none: in Kubernetes such a body cannot even be decoded.
    """
    out = {name: str(value) for name, value in quantities.items()}
    for value in out.values():
        try:
            parse_quantity(value)
        except ValueError as e:
            raise bad_request(str(e)) from e
    return out


def _containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    spec = pod.get("spec") or {}
    return [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]


def _prepare_pod(pod: dict[str, Any], old: dict[str, Any] | None) -> None:
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return
    for key, value in _POD_DEFAULTS.items():
        spec.setdefault(key, value)
    for container in _containers(pod):
        for key, value in _CONTAINER_DEFAULTS.items():
            container.setdefault(key, value)
        tag = container.get("image", "").rpartition("/")[2].partition(":")[2]
        policy = "IfNotPresent" if tag not in ("", "latest") else "Always"
        container.setdefault("imagePullPolicy", policy)
        resources = container["resources"] = dict(container["resources"])
        for kind in ("limits", "requests"):
            if resources.get(kind):
                resources[kind] = _amounts(resources[kind])
        if resources.get("limits"):
            resources["requests"] = resources["limits"] | resources.get("requests", {})
    if old is None:
        pod["status"] = {"phase": "Pending", "qosClass": _qos(pod)}


def _qos(pod: dict[str, Any]) -> str:
    needs = [c["resources"] for c in _containers(pod)]
    amounts = [r.get(kind, {}).get(n) for r in needs for n in ("cpu", "memory")
               for kind in ("limits", "requests")]  # fmt: skip
    if not any(amounts):
        return "BestEffort"
    equal = all(r.get("limits", {}).get(n) == r.get("requests", {}).get(n)
                for r in needs for n in ("cpu", "memory"))  # fmt: skip
    return "Guaranteed" if all(amounts) and equal else "Burstable"


def _check_pod(pod: dict[str, Any], old: dict[str, Any] | None) -> list[FieldError]:
    spec = pod.get("spec") or {}
    if not spec.get("containers"):
        return [FieldError(("spec", "containers"), "Required value")]
    errors = []
    names: set[str] = set()
    for i, container in enumerate(spec["containers"]):
        place = ("spec", "containers", i)
        errors += check_label(container["name"], (*place, "name"))
        if container["name"] in names:
            errors.append(FieldError((*place, "name"), "Duplicate value", "", container["name"]))
        names.add(container["name"])
        if not container.get("image"):
            errors.append(FieldError((*place, "image"), "Required value"))
        errors += _check_resources(container["resources"], (*place, "resources"))
    if spec["restartPolicy"] not in (policies := ("Always", "OnFailure", "Never")):
        detail = "supported values: " + ", ".join(f'"{p}"' for p in policies)
        where = ("spec", "restartPolicy")
        errors.append(FieldError(where, "Unsupported value", detail, spec["restartPolicy"]))
    if old is not None and _frozen(pod) != _frozen(old):
        errors.append(FieldError(("spec",), "Forbidden", _FROZEN_DETAIL))
    return errors


def _check_resources(resources: dict[str, Any], place: tuple[str | int, ...]) -> list[FieldError]:
    """Extended resources cannot be overcommitted."""
    requests = resources.get("requests", {})
    return [
        FieldError((*place, "requests"), "Invalid value", f"must be equal to {name} limit",
                   requests.get(name))
        for name, limit in (resources.get("limits") or {}).items()
        if "/" in name and requests.get(name) != limit
    ]  # fmt: skip


_FROZEN_DETAIL = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
    "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set "
    "to 1 if it was previously negative)"
)


def _frozen(pod: dict[str, Any]) -> dict[str, Any]:
    spec = {k: v for k, v in pod["spec"].items() if k not in _MUTABLE_IN_POD}
    for kind in ("containers", "initContainers"):
        spec[kind] = [{**c, "image": ""} for c in spec.get(kind, ())]
    return spec


def _pod_ready(pod: dict[str, Any]) -> list[Any]:
    statuses = pod.get("status", {}).get("containerStatuses", ())
    return [f"{sum(bool(s.get('ready')) for s in statuses)}/{len(pod['spec']['containers'])}"]


def _pod_status(pod: dict[str, Any]) -> list[Any]:
    """Return the one word kubectl shows for a Pod (pkg/printers/internalversion)."""
    status = pod.get("status", {})
    word = status.get("reason") or status.get("phase", "")
    for container in reversed(status.get("containerStatuses", ())):
        state = container.get("state", {})
        waiting, ended = state.get("waiting", {}), state.get("terminated")
        if waiting.get("reason"):
            word = waiting["reason"]
        elif ended is not None:
            word = ended.get("reason") or f"ExitCode:{ended.get('exitCode', 0)}"
    if pod["metadata"].get("deletionTimestamp"):
        word = "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return [word]


def _pod_restarts(pod: dict[str, Any]) -> list[Any]:
    statuses = pod.get("status", {}).get("containerStatuses", ())
    return [str(sum(s.get("restartCount", 0) for s in statuses))]


# -- the others -------------------------------------------------------------------------------


def _prepare_namespace(namespace: dict[str, Any], old: dict[str, Any] | None) -> None:
    meta = namespace["metadata"]
    meta.setdefault("labels", {})["kubernetes.io/metadata.name"] = meta["name"]
    if old is None:
        namespace["spec"] = {"finalizers": ["kubernetes"]}
        namespace["status"] = {"phase": "Active"}


def _prepare_node(node: dict[str, Any], _old: dict[str, Any] | None) -> None:
    node.setdefault("spec", {})
    status = node.get("status")
    for kind in ("capacity", "allocatable"):
        if isinstance(status, dict) and status.get(kind):
            status[kind] = _amounts(status[kind])


def _prepare_secret(secret: dict[str, Any], _old: dict[str, Any] | None) -> None:
    import base64  # noqa: PLC0415

    secret.setdefault("type", "Opaque")
    for key, value in (secret.pop("stringData", None) or {}).items():
        secret.setdefault("data", {})[key] = base64.b64encode(value.encode()).decode()


def _check_lease(lease: dict[str, Any], _old: dict[str, Any] | None) -> list[FieldError]:
    spec = lease.get("spec") or {}
    bounds = (("leaseDurationSeconds", 1, "must be greater than 0"),
              ("leaseTransitions", 0, "must be greater than or equal to 0"))  # fmt: skip
    return [
        FieldError(("spec", name), "Invalid value", detail, spec[name])
        for name, least, detail in bounds
        if spec.get(name, least) < least
    ]


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


def _or_none(path: str) -> Callable[[Any], list[Any]]:
    find = compile_path(path)
    return lambda obj: find(obj) or ["<none>"]


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


def builtin_resources(store: Store) -> list[Resource]:
    """Return the built-in kinds, each with an empty collection."""
    schemas = load_schemas()

    def resource(plural: str, kind: str, group: str = "", **rest: Any) -> Resource:
        rest.setdefault("namespaced", True)
        rest.setdefault("columns", (AGE,))
        collection = store.collection(extractor(rest.get("selectable", ())))
        return Resource(
            group=group, version="v1", plural=plural, kind=kind, schema=schemas[kind],
            collection=collection, singular=kind.lower(), list_kind=kind + "List", **rest,
        )  # fmt: skip

    return [
        resource("namespaces", "Namespace", namespaced=False, short_names=("ns",),
                 subresources=frozenset({"status", "finalize"}), selectable=("status.phase",),
                 prepare=_prepare_namespace, columns=(_text("Status", ".status.phase"), AGE)),
        resource("nodes", "Node", namespaced=False, short_names=("no",),
                 subresources=frozenset({"status"}), selectable=("spec.unschedulable",),
                 prepare=_prepare_node, columns=(
                     Column("Status", "string", _node_status),
                     Column("Roles", "string", _node_roles), AGE,
                     _text("Version", ".status.nodeInfo.kubeletVersion"))),
        resource("pods", "Pod", short_names=("po",), categories=("all",), selectable=_POD_FIELDS,
                 subresources=frozenset({"status", "binding"}), prepare=_prepare_pod,
                 check=_check_pod, generation=True, columns=(
                     Column("Ready", "string", _pod_ready),
                     Column("Status", "string", _pod_status),
                     Column("Restarts", "string", _pod_restarts), AGE,
                     Column("IP", "string", _or_none(".status.podIP"), 1),
                     Column("Node", "string", _or_none(".spec.nodeName"), 1))),
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
                 check=_check_lease, columns=(_text("Holder", ".spec.holderIdentity"), AGE)),
        resource("customresourcedefinitions", "CustomResourceDefinition", "apiextensions.k8s.io",
                 namespaced=False, short_names=("crd", "crds"), categories=("api-extensions",),
                 subresources=frozenset({"status"}), generation=True, unconditional=False,
                 columns=(_text("Created At", ".metadata.creationTimestamp"),)),
    ]  # fmt: skip
