"""The controller of StatefulSets (pkg/controller/statefulset)."""

from __future__ import annotations

import hashlib

import orjson

from partita_testcluster.apiserver.controllers.objects import (
    Obj,
    Objects,
    pod_of,
    ready,
    terminated,
)

__all__ = ["sync_stateful_set"]

_REVISION = "controller-revision-hash"


def sync_stateful_set(objects: Objects, stateful_set: Obj) -> None:
    """Create, replace or delete Pods in the order of their ordinals, and write the counts."""
    pods = {p["metadata"]["name"]: p for p in objects.controlled("pods", stateful_set)}
    if "deletionTimestamp" not in stateful_set["metadata"]:
        _step(objects, stateful_set, pods)
    pods = {p["metadata"]["name"]: p for p in objects.controlled("pods", stateful_set)}
    revision = _revision(stateful_set)
    running = sum(map(ready, pods.values()))
    updated = sum(_label(pod) == revision for pod in pods.values())
    status = {
        "replicas": len(pods),
        "readyReplicas": running,
        "availableReplicas": running,
        "currentReplicas": updated,
        "updatedReplicas": updated,
        "currentRevision": revision,
        "updateRevision": revision,
        "observedGeneration": stateful_set["metadata"]["generation"],
        "collisionCount": 0,
    }
    always = ("replicas", "availableReplicas", "collisionCount")
    shown = {k: v for k, v in status.items() if v or k in always}
    if stateful_set["status"] != shown:
        objects.update_status("statefulsets", stateful_set | {"status": shown})


def _step(objects: Objects, stateful_set: Obj, pods: dict[str, Obj]) -> None:
    """Do what the order of the Pods allows now."""
    spec, name = stateful_set["spec"], stateful_set["metadata"]["name"]
    in_order = spec["podManagementPolicy"] == "OrderedReady"
    wanted = [f"{name}-{i}" for i in range(spec["replicas"])]
    for ordinal, pod_name in enumerate(wanted):
        pod = pods.get(pod_name)
        if pod is None:
            _create(objects, stateful_set, pod_name, ordinal)
        elif terminated(pod):
            objects.delete("pods", pod)
        if in_order and (pod is None or not ready(pod) or _leaving(pod)):
            return
    for pod_name in sorted(pods.keys() - set(wanted), key=_ordinal, reverse=True):
        objects.delete("pods", pods[pod_name])
        if in_order:
            return
    if spec["updateStrategy"]["type"] == "RollingUpdate" and wanted:
        _update(objects, stateful_set, [pods[n] for n in wanted if n in pods])


def _update(objects: Objects, stateful_set: Obj, pods: list[Obj]) -> None:
    """Replace the last Pod of an older template, if all Pods after it are ready."""
    first = stateful_set["spec"]["updateStrategy"].get("rollingUpdate", {}).get("partition", 0)
    for pod in reversed(pods[first:]):
        if _label(pod) != _revision(stateful_set):
            objects.delete("pods", pod)
            return
        if not ready(pod) or _leaving(pod):
            return


def _create(objects: Objects, stateful_set: Obj, name: str, ordinal: int) -> None:
    pod = pod_of(stateful_set, name=name)
    del pod["metadata"]["generateName"]
    own = {
        "apps.kubernetes.io/pod-index": str(ordinal),
        "statefulset.kubernetes.io/pod-name": name,
        _REVISION: _revision(stateful_set),
    }
    pod["metadata"]["labels"] = pod["metadata"].get("labels", {}) | own
    service = stateful_set["spec"].get("serviceName", "")
    place = {"hostname": name} | ({"subdomain": service} if service else {})
    pod["spec"] = pod["spec"] | place
    objects.create("pods", stateful_set["metadata"]["namespace"], pod)


def _revision(stateful_set: Obj) -> str:
    text = orjson.dumps(stateful_set["spec"]["template"], option=orjson.OPT_SORT_KEYS)
    return f"{stateful_set['metadata']['name']}-{hashlib.sha256(text).hexdigest()[:10]}"


def _label(pod: Obj) -> str:
    return str((pod["metadata"].get("labels") or {}).get(_REVISION, ""))


def _leaving(pod: Obj) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _ordinal(name: str) -> int:
    return int(name.rpartition("-")[2])
