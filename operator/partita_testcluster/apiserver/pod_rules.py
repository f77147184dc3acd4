"""Pods: defaults, rules and the columns of `kubectl get pods`."""

from __future__ import annotations

from typing import Any

from partita.validation.field_errors import FieldError, Path
from partita.validation.metadata import check_label, check_subdomain
from partita_testcluster.apiserver.meta import amounts, dig
from partita_testcluster.apiserver.tables import AGE, Column

__all__ = ["POD_COLUMNS", "check_pod", "check_pod_spec", "prepare_pod", "prepare_pod_spec"]

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
_CLAIM_SOURCES = ("resourceClaimName", "resourceClaimTemplateName")
# k8s.io/kubernetes, pkg/registry/core/pod/strategy.go, applySchedulingGatedCondition
_GATED = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
    "lastProbeTime": None,
    "lastTransitionTime": None,
}


def prepare_pod(pod: dict[str, Any], old: dict[str, Any] | None) -> None:
    """Set the defaults that the schema does not contain."""
    prepare_pod_spec(pod)
    if old is None:
        pod["status"] = {"phase": "Pending"}
        if pod["spec"].get("schedulingGates"):
            pod["status"]["conditions"] = [dict(_GATED)]


def prepare_pod_spec(holder: dict[str, Any]) -> None:
    """Set the defaults of the spec of a Pod or of a Pod template."""
    spec = holder["spec"] = _POD_DEFAULTS | (holder.get("spec") or {})
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


def check_pod(pod: dict[str, Any], old: dict[str, Any] | None) -> list[FieldError]:
    """Return the violations that the schema cannot express."""
    errors = check_pod_spec(pod["spec"], ("spec",))
    if old is not None:
        before = _gates(old)
        errors += [
            FieldError(
                ("spec", "schedulingGates", i, "name"),
                "Forbidden",
                f"only deletion is allowed, but found new scheduling gate '{name}'",
            )
            for i, name in enumerate(_gates(pod))
            if name not in before
        ]
        if _frozen(pod) != _frozen(old):
            errors.append(FieldError(("spec",), "Forbidden", _FROZEN_DETAIL))
    return errors + _check_claim_statuses(pod)


def check_pod_spec(spec: dict[str, Any], place: Path) -> list[FieldError]:
    """Return the violations in the spec of a Pod or of a Pod template."""
    if not spec.get("containers"):
        return [FieldError((*place, "containers"), "Required value")]
    errors = _check_claims(spec.get("resourceClaims") or [], (*place, "resourceClaims"))
    claims = {claim["name"] for claim in spec.get("resourceClaims") or ()}
    names: set[str] = set()
    for i, container in enumerate(spec["containers"]):
        name, where = container["name"], (*place, "containers", i)
        errors += check_label(name, (*where, "name"))
        if name in names:
            errors.append(FieldError((*where, "name"), "Duplicate value", "", name))
        names.add(name)
        if not container.get("image"):
            errors.append(FieldError((*where, "image"), "Required value"))
        for j, claim in enumerate(container["resources"].get("claims") or ()):
            if claim["name"] not in claims:
                detail = "must be one of the names in pod.spec.resourceClaims"
                detail += f": {', '.join(sorted(claims))}" if claims else " which is empty"
                reference = (*where, "resources", "claims", j)
                errors.append(FieldError(reference, "Not found", detail, claim["name"]))
    if spec["restartPolicy"] not in _POLICIES:
        detail = "supported values: " + ", ".join(f'"{p}"' for p in _POLICIES)
        policy = (*place, "restartPolicy")
        errors.append(FieldError(policy, "Unsupported value", detail, spec["restartPolicy"]))
    return errors


def _check_claims(claims: list[dict[str, Any]], place: Path) -> list[FieldError]:
    errors = []
    names: set[str] = set()
    for i, claim in enumerate(claims):
        name, where = claim["name"], (*place, i)
        errors += check_label(name, (*where, "name"))
        if name in names:
            errors.append(FieldError((*where, "name"), "Duplicate value", "", name))
        names.add(name)
        given = [key for key in _CLAIM_SOURCES if claim.get(key)]
        if len(given) != 1:
            sources = " or ".join(f"`{key}`" for key in _CLAIM_SOURCES)
            detail = (
                f"at most one of {sources} may be specified"
                if given
                else f"must specify one of: {sources.replace(' or', ',')}"
            )
            errors.append(FieldError(where, "Invalid value", detail, claim))
        for key in given:
            errors += check_subdomain(claim[key], (*where, key))
    return errors


def _check_claim_statuses(pod: dict[str, Any]) -> list[FieldError]:
    claims = {claim["name"] for claim in pod["spec"].get("resourceClaims") or ()}
    place = ("status", "resourceClaimStatuses")
    return [
        FieldError(
            (*place, i, "name"),
            "Invalid value",
            "must match the name of an entry in `spec.resourceClaims`",
            status["name"],
        )
        for i, status in enumerate(pod["status"].get("resourceClaimStatuses") or ())
        if status["name"] not in claims
    ]


def _gates(pod: dict[str, Any]) -> list[str]:
    return [gate["name"] for gate in pod["spec"].get("schedulingGates") or ()]


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
