"""The controllers of ReplicaSets and Deployments (pkg/controller/replicaset and deployment)."""

from __future__ import annotations

import hashlib
from math import ceil, floor
from typing import Any

import orjson

from partita_testcluster.apiserver.controllers.objects import (
    Obj,
    Objects,
    owner_reference,
    pod_of,
    ready,
    terminated,
)
from partita_testcluster.apiserver.meta import now

__all__ = ["sync_deployment", "sync_replica_set"]

_HASH = "pod-template-hash"
_PHASES = ("Pending", "Unknown", "Running")


def sync_replica_set(objects: Objects, replica_set: Obj) -> None:
    """Create or delete Pods until there are as many as wanted, and write the counts."""
    namespace = replica_set["metadata"]["namespace"]
    pods = [p for p in objects.controlled("pods", replica_set) if _active(p)]
    if "deletionTimestamp" not in replica_set["metadata"]:
        wanted = replica_set["spec"]["replicas"]
        for pod in sorted(pods, key=_kept_last)[: max(0, len(pods) - wanted)]:
            objects.delete("pods", pod)
            pods.remove(pod)
        missing = range(wanted - len(pods))
        pods += [objects.create("pods", namespace, pod_of(replica_set)) for _ in missing]
    running = sum(map(ready, pods))
    status = {
        "replicas": len(pods),
        "fullyLabeledReplicas": len(pods),
        "readyReplicas": running,
        "availableReplicas": running,
        "observedGeneration": replica_set["metadata"]["generation"],
    }
    _write_status(objects, "replicasets", replica_set, status)


def sync_deployment(objects: Objects, deployment: Obj) -> None:
    """Scale the ReplicaSet of the current template up and the others down, and write the counts."""
    all_sets = objects.controlled("replicasets", deployment)
    current = next((s for s in all_sets if _template(s) == _template(deployment)), None)
    if "deletionTimestamp" not in deployment["metadata"]:
        if current is None:
            current = _new_set(objects, deployment)
            all_sets.append(current)
        others = [s for s in all_sets if s is not current]
        recreate = deployment["spec"]["strategy"]["type"] == "Recreate"
        (_recreate if recreate else _roll)(objects, deployment, current, others)
    updated, available = _count(current, "replicas"), _sum(all_sets, "availableReplicas")
    total, wanted = _sum(all_sets, "replicas"), deployment["spec"]["replicas"]
    enough = available >= wanted - _bound(deployment, "maxUnavailable")
    status = {
        "replicas": total,
        "updatedReplicas": updated,
        "readyReplicas": _sum(all_sets, "readyReplicas"),
        "availableReplicas": available,
        "unavailableReplicas": max(0, max(total, wanted) - available),
        "observedGeneration": deployment["metadata"]["generation"],
        "conditions": [_available(deployment, enough=enough)],
    }
    _write_status(objects, "deployments", deployment, status)


def _recreate(objects: Objects, deployment: Obj, current: Obj, others: list[Obj]) -> None:
    """End all Pods of other templates before Pods of the current one are created."""
    for other in others:
        _scale(objects, other, 0)
    if not any(objects.controlled("pods", other) for other in others):
        _scale(objects, current, deployment["spec"]["replicas"])


def _roll(objects: Objects, deployment: Obj, current: Obj, others: list[Obj]) -> None:
    """Replace Pods step by step, within `maxSurge` and `maxUnavailable`."""
    wanted: int = deployment["spec"]["replicas"]
    existing = sum(s["spec"]["replicas"] for s in (current, *others))
    room = wanted + _bound(deployment, "maxSurge") - existing
    mine = current["spec"]["replicas"]
    new = min(wanted, mine + max(0, room)) if mine < wanted else wanted
    _scale(objects, current, new)
    unavailable = new - _count(current, "availableReplicas")
    least = wanted - _bound(deployment, "maxUnavailable")
    removable = sum(s["spec"]["replicas"] for s in (current, *others)) - least - unavailable
    for other in others:  # first Pods that are not available: they are not missed
        dead = other["spec"]["replicas"] - _count(other, "availableReplicas")
        step = max(0, min(dead, removable))
        _scale(objects, other, other["spec"]["replicas"] - step)
        removable -= step
    removable = min(removable, _sum([current, *others], "availableReplicas") - least)
    for other in others:
        step = max(0, min(other["spec"]["replicas"], removable))
        _scale(objects, other, other["spec"]["replicas"] - step)
        removable -= step


def _new_set(objects: Objects, deployment: Obj) -> Obj:
    """Create the ReplicaSet of the current template, without Pods."""
    text = orjson.dumps(_template(deployment), option=orjson.OPT_SORT_KEYS)
    digest = hashlib.sha256(text).hexdigest()[:10]
    own = {_HASH: digest}
    template = deployment["spec"]["template"]
    meta = template.get("metadata") or {}
    labels = (meta.get("labels") or {}) | own
    selector = deployment["spec"]["selector"]
    matched = (selector.get("matchLabels") or {}) | own
    body = {
        "metadata": {
            "name": f"{deployment['metadata']['name']}-{digest}",
            "labels": labels,
            "ownerReferences": [owner_reference(deployment)],
        },
        "spec": {
            "replicas": 0,
            "selector": selector | {"matchLabels": matched},
            "template": template | {"metadata": meta | {"labels": labels}},
        },
    }
    return objects.create("replicasets", deployment["metadata"]["namespace"], body)


def _template(owner: Obj) -> Obj:
    """Return a Pod template without the label that names its ReplicaSet."""
    template = owner["spec"]["template"]
    meta = template.get("metadata") or {}
    labels = {k: v for k, v in (meta.get("labels") or {}).items() if k != _HASH}
    return {"metadata": meta | {"labels": labels}, "spec": template["spec"]}


def _scale(objects: Objects, replica_set: Obj, replicas: int) -> None:
    if replica_set["spec"]["replicas"] != replicas:
        replica_set["spec"]["replicas"] = replicas
        replica_set["metadata"] |= objects.update("replicasets", replica_set)["metadata"]


def _bound(deployment: Obj, name: str) -> int:
    """Return `maxSurge`, rounded up, or `maxUnavailable`, rounded down, as a number of Pods.

    If both are 0, one Pod may be unavailable (``ResolveFenceposts`` in deployment/util).
    """
    rolling = deployment["spec"]["strategy"].get("rollingUpdate") or {}

    def number(key: str) -> int:
        value: Any = rolling.get(key, 0)
        if not isinstance(value, str) or not value.endswith("%"):
            return int(value)
        share: float = deployment["spec"]["replicas"] * int(value[:-1]) / 100
        return ceil(share) if key == "maxSurge" else floor(share)

    if name == "maxUnavailable" and not number("maxSurge") and not number(name):
        return 1
    return number(name)


def _available(deployment: Obj, *, enough: bool) -> Obj:
    """Return the condition Available; its time is that of its last change."""
    reason = "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable"
    words = "has" if enough else "does not have"
    new = {
        "type": "Available",
        "status": str(enough),
        "reason": reason,
        "message": f"Deployment {words} minimum availability.",
    }
    for old in deployment["status"].get("conditions") or ():
        if old["type"] == "Available" and old["status"] == new["status"]:
            return new | {k: old[k] for k in ("lastTransitionTime", "lastUpdateTime")}
    return new | {"lastTransitionTime": now(), "lastUpdateTime": now()}


def _write_status(objects: Objects, plural: str, obj: Obj, status: Obj) -> None:
    """Write a status if it has changed. As in Kubernetes, zeros are left out."""
    shown = {k: v for k, v in status.items() if v or k == "replicas"}
    if obj["status"] != shown:
        objects.update_status(plural, obj | {"status": shown})


def _count(replica_set: Obj | None, name: str) -> int:
    return int((replica_set or {}).get("status", {}).get(name) or 0)


def _sum(sets: list[Obj], name: str) -> int:
    return sum(_count(s, name) for s in sets)


def _active(pod: Obj) -> bool:
    return not terminated(pod) and "deletionTimestamp" not in pod["metadata"]


def _kept_last(pod: Obj) -> tuple[bool, int, bool, list[int]]:
    """Return the sort key by which Pods are deleted (`ActivePodsWithRanks`): the newest first."""
    phase = pod["status"].get("phase", "Unknown")
    created = [-ord(letter) for letter in pod["metadata"]["creationTimestamp"]]
    return (bool(pod["spec"].get("nodeName")), _PHASES.index(phase), ready(pod), created)
