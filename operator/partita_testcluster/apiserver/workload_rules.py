"""Deployments, ReplicaSets, StatefulSets and Jobs: defaults, rules and columns.

The defaults are those of ``pkg/apis/apps/v1/defaults.go`` and ``pkg/apis/batch/v1/defaults.go`` in
k8s.io/kubernetes v1.36.3. Of the rules there are those on Pod templates, because Partita writes
none of these kinds itself.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from partita.validation.field_errors import FieldError
from partita_testcluster.apiserver.meta import dig
from partita_testcluster.apiserver.pod_rules import check_pod_spec, prepare_pod_spec
from partita_testcluster.apiserver.tables import AGE, Column, compile_path, human_duration

__all__ = [
    "DEPLOYMENT_COLUMNS",
    "JOB_COLUMNS",
    "REPLICA_SET_COLUMNS",
    "SCALE",
    "STATEFUL_SET_COLUMNS",
    "check_workload",
    "prepare_deployment",
    "prepare_job",
    "prepare_replica_set",
    "prepare_stateful_set",
]

_Obj = dict[str, Any]

SCALE: Final = {
    "specReplicasPath": ".spec.replicas",
    "statusReplicasPath": ".status.replicas",
    "labelSelectorPath": ".spec.selector",
}
"""Paths of the scale subresource of Deployments, ReplicaSets and StatefulSets."""
_UID_LABELS = ("controller-uid", "batch.kubernetes.io/controller-uid")
_NAME_LABELS = ("job-name", "batch.kubernetes.io/job-name")


# -- defaults ---------------------------------------------------------------------------------


def prepare_deployment(deployment: _Obj, _old: _Obj | None) -> None:
    """Set the defaults of a Deployment."""
    spec = deployment["spec"]
    for key, value in (("replicas", 1), ("strategy", {}), ("revisionHistoryLimit", 10),
                       ("progressDeadlineSeconds", 600)):  # fmt: skip
        spec.setdefault(key, value)
    if spec["strategy"].setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = spec["strategy"].setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")
    prepare_pod_spec(spec["template"])
    deployment.setdefault("status", {})


def prepare_replica_set(replica_set: _Obj, _old: _Obj | None) -> None:
    """Set the defaults of a ReplicaSet."""
    replica_set["spec"].setdefault("replicas", 1)
    prepare_pod_spec(replica_set["spec"].setdefault("template", {}))
    replica_set.setdefault("status", {"replicas": 0})


def prepare_stateful_set(stateful_set: _Obj, _old: _Obj | None) -> None:
    """Set the defaults of a StatefulSet."""
    spec = stateful_set["spec"]
    for key, value in (("replicas", 1), ("podManagementPolicy", "OrderedReady"),
                       ("updateStrategy", {}), ("revisionHistoryLimit", 10),
                       ("persistentVolumeClaimRetentionPolicy", {})):  # fmt: skip
        spec.setdefault(key, value)
    if spec["updateStrategy"].setdefault("type", "RollingUpdate") == "RollingUpdate":
        spec["updateStrategy"].setdefault("rollingUpdate", {}).setdefault("partition", 0)
    for when in ("whenDeleted", "whenScaled"):
        spec["persistentVolumeClaimRetentionPolicy"].setdefault(when, "Retain")
    prepare_pod_spec(spec["template"])
    stateful_set.setdefault("status", {"replicas": 0, "availableReplicas": 0})


def prepare_job(job: _Obj, old: _Obj | None) -> None:
    """Set the defaults of a Job, and the selector that names its UID."""
    spec, meta = job["spec"], job["metadata"]
    if "parallelism" not in spec:
        spec.setdefault("completions", 1)
    replacement = "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed"
    for key, value in (("parallelism", 1), ("backoffLimit", 6), ("completionMode", "NonIndexed"),
                       ("suspend", False), ("manualSelector", False),
                       ("podReplacementPolicy", replacement)):  # fmt: skip
        spec.setdefault(key, value)
    for rule in (spec.get("podFailurePolicy") or {}).get("rules") or ():
        for condition in rule.get("onPodConditions") or ():
            condition.setdefault("status", "True")
    prepare_pod_spec(spec["template"])
    labels = (spec["template"].get("metadata") or {}).get("labels") or {}
    named = labels
    if old is None and not spec["manualSelector"]:
        own = dict.fromkeys(_UID_LABELS, meta["uid"]) | dict.fromkeys(_NAME_LABELS, meta["name"])
        named = own | labels
        spec["template"]["metadata"] = (spec["template"].get("metadata") or {}) | {"labels": named}
        matched = spec.setdefault("selector", {}).setdefault("matchLabels", {})
        matched.setdefault(_UID_LABELS[1], meta["uid"])
    if labels and not meta.get("labels"):
        meta["labels"] = dict(named)
    job.setdefault("status", {})


# -- rules ------------------------------------------------------------------------------------


def check_workload(workload: _Obj, _old: _Obj | None) -> list[FieldError]:
    """Return the violations in the template of a workload's Pods."""
    return check_pod_spec(workload["spec"]["template"]["spec"], ("spec", "template", "spec"))


# -- columns ----------------------------------------------------------------------------------


def _number(path: str) -> Callable[[_Obj], list[Any]]:
    return lambda obj: [dig(obj, path) or 0]


def _ready(obj: _Obj) -> list[Any]:
    return [f"{dig(obj, 'status.readyReplicas') or 0}/{obj['spec']['replicas']}"]


def _containers(obj: _Obj) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = obj["spec"]["template"]["spec"]["containers"]
    return found


def _selector(obj: _Obj) -> list[Any]:
    labels = dig(obj, "spec.selector.matchLabels") or {}
    return [",".join(f"{k}={v}" for k, v in sorted(labels.items()))]


def _job_status(job: _Obj) -> list[Any]:
    true = {c["type"] for c in dig(job, "status.conditions") or () if c["status"] == "True"}
    for kind in ("Complete", "Failed"):
        if kind in true:
            return [kind]
    if "deletionTimestamp" in job["metadata"]:
        return ["Terminating"]
    order = ("Suspended", "FailureTarget", "SuccessCriteriaMet")
    return [next((kind for kind in order if kind in true), "Running")]


def _completions(job: _Obj) -> list[Any]:
    spec, succeeded = job["spec"], dig(job, "status.succeeded") or 0
    if "completions" in spec:
        return [f"{succeeded}/{spec['completions']}"]
    several = f" of {spec['parallelism']}" if spec["parallelism"] > 1 else ""
    return [f"{succeeded}/1{several}"]


def _job_duration(job: _Obj) -> list[Any]:
    start, end = dig(job, "status.startTime"), dig(job, "status.completionTime")
    if start is None:
        return [""]
    until = datetime.fromisoformat(end) if end else datetime.now(UTC)
    return [human_duration(datetime.fromisoformat(start), until)]


_NAMES = Column("Containers", "string", lambda o: [",".join(c["name"] for c in _containers(o))], 1)
_IMAGES = Column("Images", "string", lambda o: [",".join(c["image"] for c in _containers(o))], 1)
_SELECTOR = Column("Selector", "string", _selector, 1)

DEPLOYMENT_COLUMNS = (
    Column("Ready", "string", _ready),
    Column("Up-to-date", "string", _number("status.updatedReplicas")),
    Column("Available", "string", _number("status.availableReplicas")),
    AGE, _NAMES, _IMAGES, _SELECTOR,
)  # fmt: skip
"""Columns of `kubectl get deployments`."""
REPLICA_SET_COLUMNS = (
    Column("Desired", "integer", compile_path(".spec.replicas")),
    Column("Current", "integer", _number("status.replicas")),
    Column("Ready", "integer", _number("status.readyReplicas")),
    AGE, _NAMES, _IMAGES, _SELECTOR,
)  # fmt: skip
"""Columns of `kubectl get replicasets`."""
STATEFUL_SET_COLUMNS = (Column("Ready", "string", _ready), AGE, _NAMES, _IMAGES)
"""Columns of `kubectl get statefulsets`."""
JOB_COLUMNS = (
    Column("Status", "string", _job_status),
    Column("Completions", "string", _completions),
    Column("Duration", "string", _job_duration),
    AGE, _NAMES, _IMAGES, _SELECTOR,
)  # fmt: skip
"""Columns of `kubectl get jobs`."""
