"""Workloads of a small cluster: Pods with claims, as lists and on an API server."""

from __future__ import annotations

import json
from typing import Any

from cli.objects import BORN
from support.api import MERGE, Api
from support.claims import claim_allocation_body, claim_body, claim_request, claiming_pod_body

__all__ = ["allocate", "create_workload", "workload"]

Json = dict[str, Any]
DEPLOYMENT = {
    "labels": {"pod-template-hash": "5f6d8"},
    "owner": {"kind": "ReplicaSet", "name": "serve-5f6d8", "uid": "uid-rs"},
}


def workload(
    name: str,
    memory: str | None = "8Gi",
    *,
    says: str = "",
    position: int | None = None,
    starts: Json | None = None,
    device_class: str = "shared.gpu.partita.dev",
    threads: str | None = None,
    namespace: str = "team",
    on: str = "",
    **pod: Any,
) -> tuple[Json, Json]:
    """A Pod of Deployment `serve` and its claim.

    Parameters
    ----------
    says
        Why the claim waits.
    on
        The GPUServer on which it is allocated and its Pod runs.
    """
    notes = {"partita.dev/status": says} if says else {}
    if position is not None:
        notes["partita.dev/queue-position"] = str(position)
    if starts:
        notes["partita.dev/estimated-start"] = json.dumps(starts)
    born = {"creationTimestamp": BORN}
    claim = claim_body(
        f"{name}-gpu",
        pod=name,
        namespace=namespace,
        requests=[claim_request(device_class, memory=memory, threads=threads)],
        status={"allocation": claim_allocation_body(on)} if on else {},
        metadata={**born, "annotations": notes},
    )
    runs: Json = {}
    if on:
        running = {"name": "main", "ready": True, "state": {"running": {"startedAt": BORN}}}
        made = [{"name": "gpu", "resourceClaimName": f"{name}-gpu"}]
        status = {"containerStatuses": [running], "resourceClaimStatuses": made}
        runs = {"node": "node-1", "phase": "Running", "status": status}
    body = claiming_pod_body(
        name, namespace=namespace, metadata=born, **{**DEPLOYMENT, **runs, **pod}
    )
    return {"kind": "Pod", **body}, {"kind": "ResourceClaim", **claim}


def allocate(server: Json, claim: Json, pod: Json, **fields: Any) -> Json:
    """Add the allocation of a claim to the ledger of a GPUServer, and what it uses."""
    used = {key: fields.pop(key) for key in ("idleSince", "gpuUtilization") if key in fields}
    uid = claim["metadata"]["uid"]
    server["status"].setdefault("allocations", {})[uid] = {
        "namespace": claim["metadata"]["namespace"],
        "name": claim["metadata"]["name"],
        "pod": pod["metadata"]["name"],
        "podUID": pod["metadata"]["uid"],
        "application": "Deployment/serve",
        "lasting": True,
        "memory": "8Gi",
        "threadPercent": 50,
        "since": BORN,
        **fields,
    }
    usage = server["status"].setdefault("usage", {"memory": "3Gi", "gpuUtilization": 0})
    usage.setdefault("jobs", {})[uid] = {"memory": "2Gi", "peakMemory": "3Gi", **used}
    return server


async def create_workload(
    api: Api, pod: Json, claim: Json, *, owner: str = "PyTorchJob/serve"
) -> tuple[Json, Json]:
    """Create a Pod and its claim, as kube-controller-manager makes it; return both.

    The owner's kind is of an API that the server does not have. Its UID is that of a ConfigMap,
    because Pods are deleted if no object has the UID of their owner.
    """
    namespace = pod["metadata"]["namespace"]
    kept = ("name", "namespace", "annotations")
    meta = {key: value for key, value in pod["metadata"].items() if key in kept}
    config_maps = f"/api/v1/namespaces/{namespace}/configmaps"
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"owner-{meta['name']}"}}
    uid = (await api.post(config_maps, body)).ok().body["metadata"]["uid"]
    kind, _, name = owner.partition("/")
    reference = {"apiVersion": "kubeflow.org/v1", "kind": kind, "name": name, "uid": uid}
    meta["ownerReferences"] = [{**reference, "controller": True}]
    pods, claims = (
        f"{base}/namespaces/{namespace}/{plural}"
        for base, plural in (("/api/v1", "pods"), ("/apis/resource.k8s.io/v1", "resourceclaims"))
    )
    made = (await api.post(pods, {**pod, "apiVersion": "v1", "metadata": meta})).ok().body
    status = {"status": pod["status"]}
    made = (await api.patch(f"{pods}/{meta['name']}/status", status, MERGE)).ok().body
    pod_of = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "controller": True}
    meta = {key: value for key, value in claim["metadata"].items() if key in kept}
    meta["ownerReferences"] = [{**pod_of, "uid": made["metadata"]["uid"]}]
    body = {**claim, "apiVersion": "resource.k8s.io/v1", "metadata": meta, "status": {}}
    return made, (await api.post(claims, body)).ok().body
