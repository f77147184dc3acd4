"""Pods: defaults, rules and the columns of `kubectl get pods`."""

from __future__ import annotations

from typing import Any

from partita.validation.field_errors import FieldError
from partita.validation.metadata import check_label
from partita_testcluster.apiserver.meta import amounts, dig
from partita_testcluster.apiserver.tables import AGE, Column

__all__ = ["POD_COLUMNS", "check_pod", "prepare_pod"]

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
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
_MUTABLE_IN_POD = (
    "activeDeadlineSeconds",
    "schedulingGates",
    "terminationGracePeriodSeconds",
    "tolerations",
)


_FROZEN_DETAIL = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations`,"
    "`spec.terminationGracePeriodSeconds`"
)
_POLICIES = ("Always", "OnFailure", "Never")


def prepare_pod(pod: dict[str, Any], old: dict[str, Any] | None) -> None:
    """Set the defaults that the schema does not contain."""
    spec = pod["spec"] = _POD_DEFAULTS | (pod.get("spec") or {})
    for container in [*spec.get("initContainers", ()), *spec.get("containers", ())]:
        tag = container.get("image", "").rpartition("/")[2].partition(":")[2]
        policy = "IfNotPresent" if tag not in ("", "latest") else "Always"
        for key, value in (_CONTAINER_DEFAULTS | {"imagePullPolicy": policy}).items():
            container.setdefault(key, value)
        resources = {
            kind: amounts(v) if kind in ("limits", "requests") else v
            for kind, v in container.get("resources", {}).items()
        }
        if limits := resources.get("limits"):
            resources["requests"] = limits | resources.get("requests", {})
        container["resources"] = resources
    if old is None:
        pod["status"] = {"phase": "Pending"}


def check_pod(pod: dict[str, Any], old: dict[str, Any] | None) -> list[FieldError]:
    """Return the violations that the schema cannot express."""
    spec = pod["spec"]
    if not spec.get("containers"):
        return [FieldError(("spec", "containers"), "Required value")]
    errors = []
    names: set[str] = set()
    for i, container in enumerate(spec["containers"]):
        name, place = container["name"], ("spec", "containers", i)
        errors += check_label(name, (*place, "name"))
        if name in names:
            errors.append(FieldError((*place, "name"), "Duplicate value", "", name))
        names.add(name)
        if not container.get("image"):
            errors.append(FieldError((*place, "image"), "Required value"))
    if spec["restartPolicy"] not in _POLICIES:
        detail = "supported values: " + ", ".join(f'"{p}"' for p in _POLICIES)
        where = ("spec", "restartPolicy")
        errors.append(FieldError(where, "Unsupported value", detail, spec["restartPolicy"]))
    if old is not None and (added := _gates(pod) - _gates(old)):
        detail = f"only deletion is allowed, but found new scheduling gate {min(added)!r}"
        errors.append(FieldError(("spec", "schedulingGates"), "Forbidden", detail))
    if old is not None and _frozen(pod) != _frozen(old):
        errors.append(FieldError(("spec",), "Forbidden", _FROZEN_DETAIL))
    return errors


def _gates(pod: dict[str, Any]) -> set[str]:
    return {gate["name"] for gate in pod["spec"].get("schedulingGates") or ()}


def _frozen(pod: dict[str, Any]) -> dict[str, Any]:
    spec = {k: v for k, v in pod["spec"].items() if k not in _MUTABLE_IN_POD}
    for kind in ("containers", "initContainers"):
        spec[kind] = [{**c, "image": ""} for c in spec.get(kind, ())]
    return spec


def _ready(pod: dict[str, Any]) -> list[Any]:
    statuses = pod.get("status", {}).get("containerStatuses", ())
    return [f"{sum(bool(s.get('ready')) for s in statuses)}/{len(pod['spec']['containers'])}"]


def _status(pod: dict[str, Any]) -> list[Any]:
    """Return the status that kubectl shows for a Pod (pkg/printers/internalversion)."""
    status = pod.get("status", {})
    word = status.get("reason") or status.get("phase", "")
    for container in reversed(status.get("containerStatuses", ())):
        state = container.get("state", {})
        ended = state.get("terminated")
        if reason := state.get("waiting", {}).get("reason"):
            word = reason
        elif ended is not None:
            word = ended.get("reason") or f"ExitCode:{ended.get('exitCode', 0)}"
    if pod["metadata"].get("deletionTimestamp"):
        word = "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return [word]


def _restarts(pod: dict[str, Any]) -> list[Any]:
    statuses = pod.get("status", {}).get("containerStatuses", ())
    return [str(sum(s.get("restartCount", 0) for s in statuses))]


POD_COLUMNS = (
    Column("Ready", "string", _ready),
    Column("Status", "string", _status),
    Column("Restarts", "string", _restarts),
    AGE,
    Column("IP", "string", lambda pod: [dig(pod, "status.podIP") or "<none>"], 1),
    Column("Node", "string", lambda pod: [dig(pod, "spec.nodeName") or "<none>"], 1),
)
"""Columns of `kubectl get pods`."""
