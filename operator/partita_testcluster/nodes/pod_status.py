"""What the simulated scheduler and the kubelets write to the statuses of Pods."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from partita_testcluster.nodes.simulated_pods import Exit, SimulatedPod

__all__ = ["Restarts", "back_off_status", "pod_status", "unschedulable", "waiting_status"]

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Restarts:
    """The restarts of a Pod's containers: how many, and how they ended before the last one."""

    count: int = 0
    end: Exit | None = None
    begun: datetime | None = None
    """When those that ended had started."""


def pod_status(
    pod: SimulatedPod,
    started: datetime,
    end: Exit | None = None,
    restarts: Restarts = Restarts(),
) -> Body:
    """Return the patch of a Pod whose containers are all running, or have ended for good.

    Parameters
    ----------
    started
        When the Pod was started.
    end
        How its containers have ended; None if they run.
    """
    since = _second(started)
    if end is None:
        begun = _second(datetime.now(UTC)) if restarts.count else since
        return _status(pod, since, {"running": {"startedAt": begun}}, restarts, ready=True)
    patch = _status(pod, since, _terminated(since, end), restarts)
    status = patch["status"]
    status["phase"] = "Failed" if end.code else "Succeeded"
    if not end.admitted:
        why = {"phase": status["phase"], "startTime": since, "reason": end.reason}
        return patch | {"status": why | {"message": end.message}}
    return patch


def back_off_status(pod: SimulatedPod, started: datetime, restarts: Restarts) -> Body:
    """Return the patch of a Pod whose containers have ended and will be restarted."""
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off restarting failed"}}
    return _status(pod, _second(started), waiting, restarts)


def waiting_status(pod: SimulatedPod, reason: str, message: str = "") -> Body:
    """Return the patch of a Pod whose containers do not start."""
    waiting = {"waiting": {"reason": reason} | ({"message": message} if message else {})}
    patch = _status(pod, _second(datetime.now(UTC)), waiting)
    patch["status"]["phase"] = "Pending"
    return patch


def unschedulable(pod: SimulatedPod, why: str) -> Body:
    """Return the patch of a Pod that fits on no node; rejected if the Pod has changed since."""
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "SchedulingGated" if pod.gated else "Unschedulable",
        "message": why,
        "lastTransitionTime": _second(datetime.now(UTC)),
    }
    meta = {"uid": pod.uid, "resourceVersion": pod.version}
    return {"metadata": meta, "status": {"conditions": [condition]}}


def _status(
    pod: SimulatedPod,
    since: str,
    state: Body,
    restarts: Restarts = Restarts(),
    *,
    ready: bool = False,
) -> Body:
    now = _second(datetime.now(UTC))
    conditions = [
        *([pod.disrupted] if pod.disrupted else ()),
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": since},
        {"type": "Ready", "status": str(ready), "lastTransitionTime": now},
    ]
    begun = _second(restarts.begun) if restarts.begun else since
    last = {"lastState": _terminated(begun, restarts.end)} if restarts.end else {}
    statuses = [
        {"name": c["name"], "image": c.get("image", ""), "imageID": ""}
        | {"ready": ready, "restartCount": restarts.count, "state": state}
        | last
        for c in pod.containers
    ]
    status = {"phase": "Running", "startTime": since, "conditions": conditions}
    return {"metadata": {"uid": pod.uid}, "status": status | {"containerStatuses": statuses}}


def _terminated(since: str, end: Exit) -> Body:
    reason = end.reason or ("Error" if end.code else "Completed")
    times = {"startedAt": since, "finishedAt": _second(datetime.now(UTC))}
    why = {"exitCode": end.code, "reason": reason, "message": end.message}
    return {"terminated": why | times}


def _second(time: datetime) -> str:
    """Return a time in the format of Kubernetes' Time: whole seconds."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
