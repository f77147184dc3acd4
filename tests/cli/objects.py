"""Objects of a small cluster: two GPUs on a node, and jobs in every state."""

from __future__ import annotations

import itertools
from typing import Any

from partita.constants import GROUP, LABEL_COMPONENT, LABEL_SERVER, VERSION
from partita.informer.listing import Lists
from partita.kube.client import (
    CLAIMS,
    JOBS,
    NAMESPACES,
    NODES,
    PARTITIONS,
    PODS,
    PROFILES,
    SERVERS,
)
from support.api import MERGE, Api

__all__ = [
    "BORN",
    "GPU",
    "attempt",
    "create",
    "job",
    "lists",
    "node",
    "partition",
    "running",
    "server",
    "server_pod",
]

Json = dict[str, Any]

BORN = "2026-01-01T12:00:00Z"
GPU = "GPU-11111111-2222-3333-4444-55555555555"
PLURALS = {
    "GPUPartition": "gpupartitions",
    "GPUServer": "gpuservers",
    "SharedGPUJob": "sharedgpujobs",
}
_versions = itertools.count(1)


def _object(kind: str, name: str, spec: Json, status: Json, namespace: str = "") -> Json:
    version = next(_versions)
    meta = {
        "name": name,
        "uid": f"uid-{name}",
        "resourceVersion": str(version),
        "generation": 1,
        "creationTimestamp": BORN,
    }
    if namespace:
        meta["namespace"] = namespace
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": kind,
        "metadata": meta,
        "spec": spec,
        "status": status,
    }


def partition(name: str = "shared", *, trouble: str = "", **spec: Any) -> Json:
    conditions = [{"type": "Degraded", "status": "True", "reason": "GPUsUnready",
                   "message": trouble}] if trouble else []  # fmt: skip
    return _object("GPUPartition", name, {"gpus": 2, **spec}, {"conditions": conditions})


def node(name: str = "node-1") -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "1"},
        "spec": {},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }


def server(
    name: str,
    *jobs: Json,
    ready: bool = True,
    used: dict[str, str] | None = None,
    on: str = "node-1",
    of: str = "shared",
) -> Json:
    """A GPU with 40Gi on which `jobs` are allocated, in order."""
    status: Json = {
        "podUID": _pod_uid(name),
        "node": on,
        "uuid": f"{GPU}{name[-1]}",
        "product": "NVIDIA A100-SXM4-40GB",
        "memory": "40Gi",
        "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        "allocations": {
            job["metadata"]["uid"]: {
                "namespace": job["metadata"]["namespace"],
                "name": job["metadata"]["name"],
                "attempt": 1,
                "memory": job["spec"]["gpuMemory"],
                "since": f"2026-01-01T12:00:{place:02}Z",
            }
            for place, job in enumerate(jobs)
        },
    }
    if used:
        status["usage"] = {
            "memory": "10Gi",
            "gpuUtilization": 70,
            "jobs": {uid: {"memory": amount, "peakMemory": amount} for uid, amount in used.items()},
        }
    return _object("GPUServer", name, {"partition": of}, status)


def job(
    name: str,
    memory: str | None = "10Gi",
    *,
    namespace: str = "team",
    status: Json | None = None,
    **spec: Any,
) -> Json:
    body = {
        "partition": "shared",
        "template": {"spec": {"containers": [{"name": "main", "image": "program"}]}},
        **spec,
    }
    if memory is not None:
        body["gpuMemory"] = memory
    return _object("SharedGPUJob", name, body, status or {}, namespace)


def running(place: str, *beside: str) -> Json:
    """The status of a job that runs since the beginning."""
    first = attempt(1, place)
    return {
        "phase": "Running",
        "attempts": [first],
        "assignment": {
            "servers": [place],
            "node": "node-1",
            "memory": "10Gi",
            "pod": first["pod"],
            "attempt": 1,
            "beside": list(beside),
        },
    }


def attempt(number: int, place: str, **more: Any) -> Json:
    return {
        "number": number,
        "pod": f"pod-{number}",
        "node": "node-1",
        "servers": [place],
        "memory": "10Gi",
        "bookedTime": BORN,
        "startTime": BORN,
        **more,
    }


def _pod_uid(server: str) -> str:
    return f"uid-pod-{server}"


def server_pod(server: str, namespace: str = "partita-system") -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": server,
            "namespace": namespace,
            "uid": _pod_uid(server),
            "resourceVersion": "1",
            "labels": {LABEL_COMPONENT: "server", LABEL_SERVER: server},
            "ownerReferences": [
                {
                    "apiVersion": f"{GROUP}/{VERSION}",
                    "kind": "GPUServer",
                    "name": server,
                    "uid": f"uid-{server}",
                    "controller": True,
                }
            ],
        },
        "spec": {"containers": [{"name": "agent", "image": "partita"}]},
        "status": {"phase": "Running"},
    }


def lists(*objects: Json) -> Lists:
    """Sort objects by kind, as the API server lists them; each GPUServer gets its Pod."""
    servers = [o["metadata"]["name"] for o in objects if o["kind"] == "GPUServer"]
    objects += tuple(map(server_pod, servers))
    kinds = (NODES, NAMESPACES, PARTITIONS, PROFILES, SERVERS, JOBS, CLAIMS, PODS)
    return {kind: [o for o in objects if o["kind"] == kind.kind] for kind in kinds}


async def create(api: Api, body: Json) -> Json:
    """Create an object with its status on an API server; return it with its UID.

    A server Pod comes after its GPUServer.
    """
    meta = body["metadata"]
    meta = {key: meta[key] for key in ("name", "namespace") if key in meta}
    if body["kind"] == "Node":
        path = "/api/v1/nodes"
    elif body["kind"] == "Pod":
        return await _create_server_pod(api, body)
    else:
        inside = f"/namespaces/{meta['namespace']}" if "namespace" in meta else ""
        path = f"/apis/{GROUP}/{VERSION}{inside}/{PLURALS[body['kind']]}"
    created = (await api.post(path, {**body, "metadata": meta, "status": {}})).ok().body
    if body["status"]:
        status = {"status": body["status"]}
        path = f"{path}/{meta['name']}/status"
        created = (await api.patch(path, status, MERGE)).ok().body
    return created


async def _create_server_pod(api: Api, body: Json) -> Json:
    """Create a server Pod, owned by its GPUServer and recorded in the status of it."""
    meta = body["metadata"]
    server = f"/apis/{GROUP}/{VERSION}/gpuservers/{meta['name']}"
    uid = (await api.get(server)).ok().body["metadata"]["uid"]
    owners = [{**meta["ownerReferences"][0], "uid": uid}]
    meta = {key: meta[key] for key in ("name", "namespace", "labels")} | {"ownerReferences": owners}
    pods = f"/api/v1/namespaces/{meta['namespace']}/pods"
    created = (await api.post(pods, {**body, "metadata": meta, "status": {}})).ok().body
    recorded = {"status": {"podUID": created["metadata"]["uid"]}}
    (await api.patch(f"{server}/status", recorded, MERGE)).ok()
    status = {"status": body["status"]}
    return (await api.patch(f"{pods}/{meta['name']}/status", status, MERGE)).ok().body
