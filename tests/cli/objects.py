"""Objects of a small cluster: two GPUs on a node, and jobs in every state."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from partita.constants import GROUP, LABEL_COMPONENT, LABEL_SERVER, VERSION
from partita.kube.client import CLAIMS, JOBS, NAMESPACES, NODES, PARTITIONS, PODS, PROFILES, SERVERS
from partita.models.quantities import format_time, parse_memory
from partita.store.listing import Lists
from support import builders
from support.api import MERGE, Api
from support.builders import START, TEMPLATE, allocation, at

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

BORN = format_time(START)
GPU = "GPU-11111111-2222-3333-4444-55555555555"
KINDS = {kind.kind: kind for kind in (NODES, PARTITIONS, SERVERS, JOBS)}


def _ours(kind: str, body: Json, **status: Any) -> Json:
    typed = {"apiVersion": f"{GROUP}/{VERSION}", "kind": kind, "status": status, **body}
    typed["metadata"].setdefault("creationTimestamp", BORN)
    return typed


def partition(name: str = "shared", *, trouble: str = "", **spec: Any) -> Json:
    conditions = [{"type": "Degraded", "status": "True", "reason": "GPUsUnready",
                   "message": trouble}] if trouble else []  # fmt: skip
    body = builders.partition_body(name, **{"gpus": 2, **spec})
    return _ours("GPUPartition", body, conditions=conditions)


def node(name: str = "node-1") -> Json:
    return {"apiVersion": "v1", "kind": "Node", **builders.node_body(name)}


def server(
    name: str,
    *jobs: Json,
    ready: bool = True,
    used: dict[str, str] | None = None,
    on: str = "node-1",
    of: str = "shared",
) -> Json:
    """A GPU with 40Gi on which `jobs` are allocated, in order; `used` is by name of the job."""
    status: Json = {"uuid": f"{GPU}{name[-1]}"}
    if used:
        status["usage"] = {
            "memory": "10Gi",
            "gpuUtilization": 70,
            "jobs": {
                f"claim-{job}": {"memory": amount, "peakMemory": amount}
                for job, amount in used.items()
            },
        }
    ledger = {
        f"claim-{job['metadata']['name']}": allocation(
            job["metadata"]["name"],
            namespace=job["metadata"]["namespace"],
            memory=parse_memory(job["spec"]["gpuMemory"]),
            since=at(place),
        )
        for place, job in enumerate(jobs)
    }
    conditions = {"Ready": "True" if ready else "False"}
    body = builders.server_body(
        name, partition=of, node=on, conditions=conditions, allocations=ledger, status=status
    )
    return _ours("GPUServer", body)


def job(
    name: str,
    memory: str | None = "10Gi",
    *,
    namespace: str = "team",
    status: Json | None = None,
    **spec: Any,
) -> Json:
    asked = {"template": deepcopy(TEMPLATE), "gpuMemory": memory, **spec}
    body = builders.job_body(name, namespace=namespace, status=status, **asked)
    if memory is None:
        del body["spec"]["gpuMemory"]
    return _ours("SharedGPUJob", body)


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


def server_pod(server: str, namespace: str = "partita-system") -> Json:
    labels = {LABEL_COMPONENT: "server", LABEL_SERVER: server}
    body = builders.server_pod_body(server, namespace=namespace, labels=labels)
    spec = {"containers": [{"name": "agent", "image": "partita"}]}
    return {"apiVersion": "v1", "kind": "Pod", **body, "spec": spec}


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
    if body["kind"] == "Pod":
        return await _create_server_pod(api, body)
    path = KINDS[body["kind"]].path(namespace=meta.get("namespace", ""))
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
