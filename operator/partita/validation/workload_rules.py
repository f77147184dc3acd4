"""Deployments, StatefulSets and Jobs: the defaults that depend on other fields.

They are those of ``pkg/apis/apps/v1/defaults.go`` and ``pkg/apis/batch/v1/defaults.go`` in
k8s.io/kubernetes v1.36.3.
"""

from __future__ import annotations

from typing import Any, Final

__all__ = ["prepare_deployment", "prepare_job", "prepare_stateful_set"]

_Obj = dict[str, Any]

_UID_LABELS: Final = ("controller-uid", "batch.kubernetes.io/controller-uid")
_NAME_LABELS: Final = ("job-name", "batch.kubernetes.io/job-name")


def prepare_deployment(deployment: _Obj, _old: _Obj | None) -> None:
    """Set how a Deployment replaces Pods."""
    strategy = deployment["spec"]["strategy"]
    if strategy["type"] == "RollingUpdate":
        given = strategy.get("rollingUpdate") or {}
        strategy["rollingUpdate"] = {"maxUnavailable": "25%", "maxSurge": "25%"} | given


def prepare_stateful_set(stateful_set: _Obj, _old: _Obj | None) -> None:
    """Set how a StatefulSet replaces Pods."""
    strategy = stateful_set["spec"]["updateStrategy"]
    if strategy["type"] == "RollingUpdate":
        strategy["rollingUpdate"] = {"partition": 0} | (strategy.get("rollingUpdate") or {})


def prepare_job(job: _Obj, old: _Obj | None) -> None:
    """Set how many Pods a Job has, and the selector that names its UID."""
    spec, meta = job["spec"], job["metadata"]
    if "parallelism" not in spec:
        spec |= {"completions": 1} | spec | {"parallelism": 1}
    replacement = "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed"
    spec.setdefault("podReplacementPolicy", replacement)
    labels = (spec["template"].get("metadata") or {}).get("labels") or {}
    named = labels
    if old is None and not spec["manualSelector"]:
        uid = meta.get("uid", "")  # the object of a file has none
        own = dict.fromkeys(_UID_LABELS, uid) | dict.fromkeys(_NAME_LABELS, meta["name"])
        named = own | labels
        spec["template"]["metadata"] = (spec["template"].get("metadata") or {}) | {"labels": named}
        matched = spec.setdefault("selector", {}).setdefault("matchLabels", {})
        matched.setdefault(_UID_LABELS[1], uid)
    if labels and not meta.get("labels"):
        meta["labels"] = dict(named)
