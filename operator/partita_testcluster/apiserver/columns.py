"""The columns that kubectl shows of the built-in kinds (pkg/printers/internalversion)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from partita_testcluster.apiserver.meta import dig
from partita_testcluster.apiserver.tables import AGE, Column, age, compile_path, human_duration

__all__ = ["COLUMNS"]

_Obj = dict[str, Any]


def _or_none(name: str) -> Callable[[_Obj], list[Any]]:
    return lambda budget: [str(budget.get("spec", {}).get(name, "N/A"))]


def _node_status(node: _Obj) -> list[Any]:
    conditions = {c["type"]: c["status"] for c in node.get("status", {}).get("conditions", ())}
    words = [{"True": "Ready", "False": "NotReady"}.get(conditions.get("Ready", ""), "Unknown")]
    if node.get("spec", {}).get("unschedulable"):
        words.append("SchedulingDisabled")
    return [",".join(words)]


def _node_roles(node: _Obj) -> list[Any]:
    prefix = "node-role.kubernetes.io/"
    labels = node["metadata"].get("labels", {})
    return [",".join(sorted(k.removeprefix(prefix) for k in labels if k.startswith(prefix)))
            or "<none>"]  # fmt: skip


def _event_last_seen(event: _Obj) -> list[Any]:
    seen = (event.get("series") or {}).get("lastObservedTime") or event.get("lastTimestamp")
    return [age(seen or event.get("eventTime") or event["metadata"]["creationTimestamp"])]


def _event_object(event: _Obj) -> list[Any]:
    about = event.get("involvedObject", {})
    return [f"{about.get('kind', '').lower()}/{about.get('name', '')}"]


def _text(name: str, path: str, priority: int = 0) -> Column:
    return Column(name, "string", compile_path(path), priority)


def _count(name: str, *fields: str) -> Column:
    return Column(name, "integer", lambda o: [sum(len(o.get(f) or ()) for f in fields)])


def _pod_ready(pod: _Obj) -> list[Any]:
    statuses = pod.get("status", {}).get("containerStatuses", ())
    return [f"{sum(bool(s.get('ready')) for s in statuses)}/{len(pod['spec']['containers'])}"]


def _pod_status(pod: _Obj) -> list[Any]:
    """Return the status that kubectl shows for a Pod."""
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


def _restarts(pod: _Obj) -> list[Any]:
    statuses = pod.get("status", {}).get("containerStatuses", ())
    return [str(sum(s.get("restartCount", 0) for s in statuses))]


def _claim_state(claim: _Obj) -> list[Any]:
    """Return the state that kubectl shows for a claim (``resourceClaimState``)."""
    deleted = "deletionTimestamp" in claim["metadata"]
    states = ["deleted"] if deleted else []
    if dig(claim, "status.allocation") is not None:
        states += ["allocated", *(["reserved"] if dig(claim, "status.reservedFor") else [])]
    elif not deleted:
        states.append("pending")
    return [",".join(states)]


def _number(path: str) -> Callable[[_Obj], list[Any]]:
    return lambda obj: [dig(obj, path) or 0]


def _ready(obj: _Obj) -> list[Any]:
    return [f"{dig(obj, 'status.readyReplicas') or 0}/{obj['spec']['replicas']}"]


def _containers(obj: _Obj) -> list[_Obj]:
    found: list[_Obj] = obj["spec"]["template"]["spec"]["containers"]
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


COLUMNS: Final = {
    "ConfigMap": (_count("Data", "data", "binaryData"), AGE),
    "CustomResourceDefinition": (_text("Created At", ".metadata.creationTimestamp"),),
    "Deployment": (
        Column("Ready", "string", _ready),
        Column("Up-to-date", "string", _number("status.updatedReplicas")),
        Column("Available", "string", _number("status.availableReplicas")),
        AGE, _NAMES, _IMAGES, _SELECTOR,
    ),
    "Event": (
        Column("Last Seen", "string", _event_last_seen), _text("Type", ".type"),
        _text("Reason", ".reason"), Column("Object", "string", _event_object),
        _text("Source", ".source.component", 1), _text("Message", ".message"),
    ),
    "Job": (
        Column("Status", "string", _job_status),
        Column("Completions", "string", _completions),
        Column("Duration", "string", _job_duration),
        AGE, _NAMES, _IMAGES, _SELECTOR,
    ),
    "Lease": (_text("Holder", ".spec.holderIdentity"), AGE),
    "Namespace": (_text("Status", ".status.phase"), AGE),
    "Node": (
        Column("Status", "string", _node_status), Column("Roles", "string", _node_roles), AGE,
        _text("Version", ".status.nodeInfo.kubeletVersion"),
    ),
    "Pod": (
        Column("Ready", "string", _pod_ready),
        Column("Status", "string", _pod_status),
        Column("Restarts", "string", _restarts),
        AGE,
        Column("IP", "string", lambda pod: [dig(pod, "status.podIP") or "<none>"], 1),
        Column("Node", "string", lambda pod: [dig(pod, "spec.nodeName") or "<none>"], 1),
    ),
    "PodDisruptionBudget": (
        Column("Min Available", "string", _or_none("minAvailable")),
        Column("Max Unavailable", "string", _or_none("maxUnavailable")),
        Column("Allowed Disruptions", "integer", lambda o: [o["status"]["disruptionsAllowed"]]),
        AGE,
    ),
    "ReplicaSet": (
        Column("Desired", "integer", compile_path(".spec.replicas")),
        Column("Current", "integer", _number("status.replicas")),
        Column("Ready", "integer", _number("status.readyReplicas")),
        AGE, _NAMES, _IMAGES, _SELECTOR,
    ),
    "ResourceClaim": (Column("State", "string", _claim_state), AGE),
    "ResourceSlice": (
        Column("Node", "string", lambda s: [s["spec"].get("nodeName", "")]),
        _text("Driver", ".spec.driver"), _text("Pool", ".spec.pool.name"), AGE,
    ),
    "Secret": (_text("Type", ".type"), _count("Data", "data"), AGE),
    "StatefulSet": (Column("Ready", "string", _ready), AGE, _NAMES, _IMAGES),
}  # fmt: skip
"""Columns of `kubectl get`, by kind; others have only their age."""
