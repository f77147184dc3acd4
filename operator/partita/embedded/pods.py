"""Pods: defaults, rules and what `kubectl get pods` shows of them."""

from __future__ import annotations

from typing import Any

from partita.embedded.errors import FieldError
from partita.embedded.meta import amounts, check_label

__all__ = ["check_pod", "pod_ready", "pod_restarts", "pod_status", "prepare_pod"]

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


def _containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    spec = pod.get("spec") or {}
    return [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]


def prepare_pod(pod: dict[str, Any], old: dict[str, Any] | None) -> None:
    """Fill in the defaults that do not stand in the schema."""
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
                resources[kind] = amounts(resources[kind])
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


def check_pod(pod: dict[str, Any], old: dict[str, Any] | None) -> list[FieldError]:
    """Return the violations that the schema cannot express."""
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
    """Check that extended resources are not overcommitted."""
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


def pod_ready(pod: dict[str, Any]) -> list[Any]:
    """Return how many containers are ready, of how many."""
    statuses = pod.get("status", {}).get("containerStatuses", ())
    return [f"{sum(bool(s.get('ready')) for s in statuses)}/{len(pod['spec']['containers'])}"]


def pod_status(pod: dict[str, Any]) -> list[Any]:
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


def pod_restarts(pod: dict[str, Any]) -> list[Any]:
    """Return how often its containers were started again."""
    statuses = pod.get("status", {}).get("containerStatuses", ())
    return [str(sum(s.get("restartCount", 0) for s in statuses))]
