"""Pods and Pod templates: the defaults and rules that no schema can express."""

from __future__ import annotations

from typing import Any, Final

from partita.validation.field_errors import FieldError, Path, duplicates

__all__ = ["check_pod", "check_pod_spec", "prepare_pod", "prepare_pod_spec"]

_Obj = dict[str, Any]

_MUTABLE_IN_POD: Final = (
    "activeDeadlineSeconds",
    "schedulingGates",
    "terminationGracePeriodSeconds",
    "tolerations",
)
_FROZEN_DETAIL: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations`,"
    "`spec.terminationGracePeriodSeconds`"
)
_CLAIM_SOURCES: Final = ("resourceClaimName", "resourceClaimTemplateName")
# k8s.io/kubernetes, pkg/registry/core/pod/strategy.go, applySchedulingGatedCondition
_GATED: Final = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
    "lastProbeTime": None,
    "lastTransitionTime": None,
}


def prepare_pod(pod: _Obj, old: _Obj | None) -> None:
    """Set the defaults that depend on other fields."""
    spec = pod["spec"]
    prepare_pod_spec(spec)
    spec.setdefault("enableServiceLinks", True)  # as the requests, not in a template
    for container in _containers(spec):
        if limits := container["resources"].get("limits"):
            requests = container["resources"].get("requests", {})
            container["resources"]["requests"] = limits | requests
    if old is None and spec.get("schedulingGates"):
        pod["status"]["conditions"] = [dict(_GATED)]


def prepare_pod_spec(spec: _Obj) -> None:
    """Set the defaults of the spec of a Pod or of a template that depend on other fields."""
    for container in _containers(spec):
        tag = container.get("image", "").rpartition("/")[2].partition(":")[2]
        policy = "IfNotPresent" if tag not in ("", "latest") else "Always"
        container.setdefault("imagePullPolicy", policy)


def check_pod(pod: _Obj, old: _Obj | None) -> list[FieldError]:
    """Return the violations in a Pod."""
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


def check_pod_spec(spec: _Obj, place: Path) -> list[FieldError]:
    """Return the violations in the spec of a Pod or of a Pod template."""
    containers, claims = spec["containers"], spec.get("resourceClaims") or []
    if not containers:
        return [FieldError((*place, "containers"), "Required value")]
    errors = duplicates(claims, (*place, "resourceClaims"), "name")
    errors += duplicates(containers, (*place, "containers"), "name")
    for i, claim in enumerate(claims):
        errors += _check_source(claim, (*place, "resourceClaims", i))
    names = sorted(claim["name"] for claim in claims)
    every = [("initContainers", i, c) for i, c in enumerate(spec.get("initContainers") or ())]
    every += [("containers", i, c) for i, c in enumerate(containers)]
    for kind, i, container in every:
        where = (*place, kind, i)
        if not container["image"]:
            errors.append(FieldError((*where, "image"), "Required value"))
        for j, claim in enumerate(container["resources"].get("claims") or ()):
            if claim["name"] not in names:
                detail = "must be one of the names in pod.spec.resourceClaims"
                detail += f": {', '.join(names)}" if names else " which is empty"
                reference = (*where, "resources", "claims", j)
                errors.append(FieldError(reference, "Not found", detail, claim["name"]))
    return errors


def _check_source(claim: _Obj, place: Path) -> list[FieldError]:
    given = [key for key in _CLAIM_SOURCES if claim.get(key)]
    if len(given) == 1:
        return []
    sources = " or ".join(f"`{key}`" for key in _CLAIM_SOURCES)
    detail = (
        f"at most one of {sources} may be specified"
        if given
        else f"must specify one of: {sources.replace(' or', ',')}"
    )
    return [FieldError(place, "Invalid value", detail, claim)]


def _check_claim_statuses(pod: _Obj) -> list[FieldError]:
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


def _containers(spec: _Obj) -> list[_Obj]:
    return [*spec.get("initContainers", ()), *spec.get("containers", ())]


def _gates(pod: _Obj) -> list[str]:
    return [gate["name"] for gate in pod["spec"].get("schedulingGates") or ()]


def _frozen(pod: _Obj) -> _Obj:
    spec = {k: v for k, v in pod["spec"].items() if k not in _MUTABLE_IN_POD}
    for kind in ("containers", "initContainers"):
        spec[kind] = [{**c, "image": ""} for c in spec.get(kind, ())]
    return spec
