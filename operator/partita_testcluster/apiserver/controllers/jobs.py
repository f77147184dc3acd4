"""The controller of Jobs (pkg/controller/job), without indices."""

from __future__ import annotations

from partita_testcluster.apiserver.controllers.objects import (
    Obj,
    Objects,
    controller_of,
    pod_of,
    ready,
    terminated,
)
from partita_testcluster.apiserver.meta import dig, now

__all__ = ["TRACKING", "sync_job", "sync_orphan"]

TRACKING = "batch.kubernetes.io/job-tracking"
"""Finalizer of a Pod that is not counted yet."""
_END = ("Complete", "Failed")


def sync_job(objects: Objects, job: Obj) -> None:
    """Count the Pods that have ended, then create or delete Pods, or end the Job."""
    spec, status = job["spec"], dict(job["status"])
    pods = objects.controlled("pods", job)
    finished = any(c["type"] in _END for c in status.get("conditions") or ())
    for pod in [p for p in pods if _uncounted(p) and _over(p)]:
        action = "" if _succeeded(pod) else _action(spec, pod)
        if not finished and action != "Ignore":
            key = "succeeded" if _succeeded(pod) else "failed"
            status[key] = status.get(key, 0) + 1
        _forget(objects, pod)
    active = [p for p in pods if not _over(p) and "deletionTimestamp" not in p["metadata"]]
    if finished or "deletionTimestamp" in job["metadata"]:
        _end_pods(objects, active)
        active = []
    else:
        completions = spec.get("completions")
        done = completions is not None and status.get("succeeded", 0) >= completions
        if status.get("failed", 0) > spec["backoffLimit"]:
            _end_pods(objects, active)
            active = []
            why = ("BackoffLimitExceeded", "Job has reached the specified backoff limit")
            status["conditions"] = [_condition(kind, *why) for kind in ("FailureTarget", "Failed")]
        elif done or (completions is None and status.get("succeeded") and not active):
            _end_pods(objects, active)
            active = []
            status["completionTime"] = now()
            why = ("CompletionsReached", "Reached expected number of succeeded pods")
            met = ("SuccessCriteriaMet", "Complete")
            status["conditions"] = [_condition(kind, *why) for kind in met]
        else:
            active = _scale(objects, job, status, active)
    counts = {"active": len(active), "ready": sum(map(ready, active))}
    shown = {k: v for k, v in (status | counts).items() if v or k == "ready"}
    if shown != job["status"]:
        objects.update_status("jobs", job | {"status": shown})


def sync_orphan(objects: Objects, pod: Obj) -> None:
    """Remove the finalizer of a Pod whose Job is deleted (`syncOrphanPod`)."""
    owner = controller_of(pod)
    if owner.get("kind") != "Job" or not _uncounted(pod):
        return
    job = objects.get("jobs", pod["metadata"]["namespace"], owner["name"])
    if job is None or job["metadata"]["uid"] != owner["uid"]:
        _forget(objects, pod)


def _scale(objects: Objects, job: Obj, status: Obj, active: list[Obj]) -> list[Obj]:
    """Create or delete Pods until as many run as wanted; return those that run."""
    spec = job["spec"]
    suspended = _condition("Suspended", "JobSuspended", "Job suspended")
    if spec["suspend"]:
        _end_pods(objects, active)
        status.pop("startTime", None)
        old = [c for c in status.get("conditions") or () if c["type"] == "Suspended"]
        status["conditions"] = old or [suspended]
        return []
    if status.get("conditions") and status["conditions"][0]["status"] == "True":
        why = {"status": "False", "reason": "JobResumed", "message": "Job resumed"}
        status["conditions"] = [suspended | why]
    status.setdefault("startTime", now())
    wanted: int = spec["parallelism"]
    if spec.get("completions") is not None:
        wanted = min(wanted, spec["completions"] - status.get("succeeded", 0))
    elif status.get("succeeded"):
        wanted = len(active)
    _end_pods(objects, active[wanted:])
    leaving = 0
    if spec["podReplacementPolicy"] == "Failed":
        leaving = sum(_uncounted(p) and not _over(p) for p in objects.controlled("pods", job))
        leaving -= len(active)
    new = []
    for _ in range(wanted - len(active) - leaving):
        pod = pod_of(job, finalizers=[TRACKING])
        new.append(objects.create("pods", job["metadata"]["namespace"], pod))
    return active[:wanted] + new


def _action(spec: Obj, pod: Obj) -> str:
    """Return the action of the first rule of the Pod failure policy whose conditions a Pod has."""
    true = {(c["type"], c["status"]) for c in dig(pod, "status.conditions") or ()}
    for rule in (spec.get("podFailurePolicy") or {}).get("rules") or ():
        patterns = rule.get("onPodConditions") or ()
        if any((p["type"], p["status"]) in true for p in patterns):
            return str(rule["action"])
    return "Count"


def _over(pod: Obj) -> bool:
    """Return whether a Pod has ended, or its kubelet has removed it."""
    meta = pod["metadata"]
    removed: bool = "deletionTimestamp" in meta and not meta.get("deletionGracePeriodSeconds")
    return terminated(pod) or removed


def _succeeded(pod: Obj) -> bool:
    return bool(dig(pod, "status.phase") == "Succeeded")


def _uncounted(pod: Obj) -> bool:
    return TRACKING in (pod["metadata"].get("finalizers") or ())


def _forget(objects: Objects, pod: Obj) -> None:
    """Remove the finalizer of a Pod that is counted."""
    pod["metadata"]["finalizers"].remove(TRACKING)
    objects.update("pods", pod)


def _end_pods(objects: Objects, pods: list[Obj]) -> None:
    for pod in pods:
        objects.delete("pods", pod)


def _condition(kind: str, reason: str, message: str) -> Obj:
    time = now()
    return {
        "type": kind,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastProbeTime": time,
        "lastTransitionTime": time,
    }
