"""Clusters to look at: a small one with a bit of everything, and a large one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from cli import objects
from cli.objects import BORN, create
from cli.workloads import allocate as record
from cli.workloads import create_workload, workload
from partita.models.quantities import format_time, parse_memory
from partita_testcluster.nodes.container_logs import KUBELET_HOST, ContainerLog, KubeletAPI
from support import builders
from support.api import MERGE, Api

__all__ = [
    "GROUP_PATH",
    "LEASES",
    "allocate",
    "claim_of",
    "make_demo",
    "make_ended",
    "make_job",
    "make_lease",
    "make_partition",
    "make_server",
    "make_workload",
    "make_workloads",
    "pod_with_log",
    "put_status",
]

Body = dict[str, Any]

GROUP_PATH = "/apis/partita.dev/v1alpha1"


def _ago(minutes: float) -> datetime:
    return datetime.now(UTC) - timedelta(minutes=minutes)


def _time(minutes_ago: float) -> str:
    return format_time(_ago(minutes_ago))


async def put_status(api: Api, path: str, status: Body) -> Body:
    body: Body = (await api.patch(f"{path}/status", {"status": status}, MERGE)).ok().body
    return body


async def make_partition(api: Api, name: str, *, status: Body | None = None, **spec: Any) -> Body:
    return await create(api, {**objects.partition(name, **spec), "status": status or {}})


async def make_job(
    api: Api, name: str, namespace: str, partition: str, *, memory: str = "4Gi", **more: Any
) -> Body:
    return await create(
        api, objects.job(name, memory, namespace=namespace, partition=partition, **more)
    )


async def make_ended(api: Api, name: str, namespace: str, phase: str = "Succeeded") -> Body:
    """Make a job that has ended."""
    done = {"phase": phase, "reason": phase, "completionTime": "2026-01-01T12:00:00Z"}
    return await make_job(api, name, namespace, "shared", status=done)


def claim_of(job: Body) -> str:
    """The UID of the claim of a job's attempt."""
    return f"claim-{job['metadata']['uid']}"


async def make_server(
    api: Api,
    name: str,
    partition: str,
    *jobs: tuple[Body, str, str],
    condition: str = "Ready",
    node: str = "node-1",
    busy: int = 70,
    mps: str = "Ready",
) -> None:
    """A GPU on which jobs are allocated: each with its allocation and what it uses."""
    usage = {
        "memory": f"{sum(int(used.removesuffix('Mi')) for _, _, used in jobs)}Mi",
        "gpuUtilization": busy,
        "jobs": {claim_of(job): {"memory": used, "peakMemory": used} for job, _, used in jobs},
    }
    body = builders.server_body(
        name,
        partition=partition,
        node=node,
        conditions={"Ready": "False", condition: "True"},
        allocations={
            claim_of(job): builders.allocation(
                job["metadata"]["name"],
                jobUID=job["metadata"]["uid"],
                namespace=job["metadata"]["namespace"],
                memory=parse_memory(allocated),
                since=_ago(20 - n),
                threadPercent=50,
            )
            for n, (job, allocated, _) in enumerate(jobs)
        },
        status={"mps": {"state": mps, "clients": len(jobs)}, "usage": usage},
    )
    await create(api, {"apiVersion": "partita.dev/v1alpha1", "kind": "GPUServer", **body})


LEASES = "/apis/coordination.k8s.io/v1/namespaces/partita-system/leases"


async def make_lease(api: Api) -> None:
    """Make the Lease that an operator holds."""
    spec = {
        "holderIdentity": "pod-1",
        "leaseDurationSeconds": 3600,
        "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    }
    (await api.post(LEASES, {"metadata": {"name": "partita-operator"}, "spec": spec})).ok()


def _ran(first: float, minutes: float, memory: str, server: str) -> Body:
    """An attempt that waited some minutes, and ran some."""
    attempt = {
        "number": 1,
        "servers": [server],
        "memory": memory,
        "queuedTime": _time(first + 6),
        "bookedTime": _time(first),
        "startTime": _time(first),
    }
    if minutes:
        attempt |= {"endTime": _time(first - minutes), "outcome": "Succeeded"}
    return attempt


_PAST = (
    # name, namespace, started so many minutes ago, for so many, memory, GPU
    ("resnet", "vision", 340, 90, "12Gi", 0), ("yolo", "vision", 330, 40, "8Gi", 0),
    ("bert", "language", 300, 120, "16Gi", 1), ("whisper", "speech", 260, 75, "10Gi", 0),
    ("clip", "vision", 235, 60, "14Gi", 1), ("t5", "language", 210, 95, "12Gi", 0),
    ("unet", "vision", 170, 45, "18Gi", 2), ("gpt-eval", "language", 165, 110, "15Gi", 1),
    ("align", "speech", 120, 30, "6Gi", 0), ("vit", "vision", 110, 60, "20Gi", 2),
)  # fmt: skip

_PRESENT = (
    # name, namespace, started so many minutes ago, memory, used, GPU
    ("train-detector", "vision", 96, "14Gi", "12900Mi", 0), ("asr-finetune", "speech", 60, "12Gi", "9100Mi", 0),
    ("embed-docs", "language", 22, "8Gi", "7900Mi", 0), ("llm-adapter", "language", 75, "20Gi", "19300Mi", 1),
    ("segment-tiles", "vision", 41, "9Gi", "5200Mi", 1), ("sweep-07", "speech", 33, "6Gi", "4100Mi", 2),
    ("sweep-08", "speech", 31, "6Gi", "5700Mi", 2), ("distill", "language", 18, "10Gi", "6400Mi", 2),
)  # fmt: skip


async def make_demo(api: Api, name: str, namespaces: dict[str, str]) -> None:
    """Four GPUs, three teams, jobs in every state, and some hours of history.

    Parameters
    ----------
    namespaces
        The namespaces `vision`, `language` and `speech` by these names.
    """
    vision, language, speech = (namespaces[n] for n in ("vision", "language", "speech"))
    gpus = [f"{name}-{n}" for n in range(4)]
    message = f"{gpus[3]} is Faulted: its jobs were queued again, MPS is restarted"
    since = {"status": "True", "lastTransitionTime": _time(0)}
    status = {
        "policy": {"active": "planner", "cycles": 1284, "fallbacks": 2, "rejected": 0},
        "shadow": [
            {"name": "dqn", "cycles": 1284, "agreed": 1194, "placements": 402},
            {"name": "tetris", "cycles": 1284, "agreed": 885, "placements": 398},
        ],
        "conditions": [
            {"type": "PolicyHealthy", "reason": "Deciding", "message": "", **since},
            {"type": "Degraded", "reason": "GPUsUnready", "message": message, **since},
        ],
        "gpuSummary": [{"name": gpu, "state": "Ready"} for gpu in gpus[:3]],
    }
    await make_partition(
        api, name, gpus=4, policy={"name": "planner", "shadow": ["dqn", "tetris"]}, status=status
    )
    for job, team, first, minutes, memory, gpu in _PAST:
        done = {"phase": "Succeeded", "attempts": [_ran(first, minutes, memory, gpus[gpu])]}
        await make_job(api, job, namespaces[team], name, memory=memory, status=done)

    on: list[list[tuple[Body, str, str]]] = [[], [], []]
    for job, team, first, memory, used, gpu in _PRESENT:
        now = {"phase": "Running", "attempts": [_ran(first, 0, memory, gpus[gpu])]}
        made = await make_job(api, job, namespaces[team], name, memory=memory, status=now)
        on[gpu].append((made, memory, used))
    for n, jobs in enumerate(on):
        node = f"gpu-node-{n // 2 + 1}"
        await make_server(api, gpus[n], name, *jobs, node=node, busy=(91, 84, 63)[n])
    await make_server(
        api, gpus[3], name, condition="Faulted", node="gpu-node-2", busy=0, mps="Faulted"
    )
    waiting = [
        ("pretrain-vit", vision, "24Gi", "InsufficientMemory",
         f"needs 24.0 GiB of GPU memory; the most that is free is 15.2 GiB of 37.2 GiB on {gpus[2]}"),
        ("translate-eval", language, "18Gi", "InsufficientMemory",
         f"needs 18.0 GiB of GPU memory; the most that is free is 15.2 GiB of 37.2 GiB on {gpus[2]}"),
        ("sweep-09", speech, "6Gi", "QuotaExceeded",
         f"24.0 GiB of 24.0 GiB of namespace {speech} are allocated already"),
        ("diffusion-xl", vision, "36Gi", "GPUHeld", f"{gpus[1]} is held for it until enough is released"),
        ("big-model", language, "64Gi", "NeverFits",
         "needs 64.0 GiB of GPU memory; no GPU of the partition has more than 37.2 GiB: ask for less"),
    ]  # fmt: skip
    for place, (job, team, memory, reason, message) in enumerate(waiting, 1):
        why = {"phase": "Queued", "reason": reason, "message": message, "queuePosition": place}
        await make_job(api, job, team, name, memory=memory, status=why)
    await make_job(api, "nightly", speech, name, suspend=True, status={"phase": "Suspended"})


_CONTAINER = {"name": "main", "image": "program:1", "imageID": "", "restartCount": 0, "ready": True}
_STARTED = {"state": {"running": {"startedAt": BORN}}}
RUNNING: Body = {"phase": "Running", "status": {"containerStatuses": [_CONTAINER | _STARTED]}}
"""A Pod whose container runs."""


async def make_workload(
    api: Api,
    name: str,
    namespace: str,
    partition: str,
    *,
    kind: str = "Deployment",
    memory: str = "4Gi",
    **pod: Any,
) -> tuple[Body, Body]:
    """A Pod of a controller of this kind and its claim; the controller has the Pod's first name."""
    where = {"namespace": namespace, "device_class": f"{partition}.gpu.partita.dev"}
    owner = f"{kind}/{name.partition('-')[0]}"
    return await create_workload(api, *workload(name, memory, **where, **pod), owner=owner)


async def allocate(
    api: Api, server: str, pod: Body, claim: Body, *, used: str, minutes: float = 30, **fields: Any
) -> None:
    """Allocate a claim on a GPU since some minutes, with what it uses."""
    owner = pod["metadata"]["ownerReferences"][0]
    fields |= {
        "application": f"{owner['kind']}/{owner['name']}",
        "lasting": pod["spec"]["restartPolicy"] == "Always",
        "since": _time(minutes),
    }
    path = f"{GROUP_PATH}/gpuservers/{server}"
    body = record((await api.get(path)).ok().body, claim, pod, **fields)
    uses = {"memory": used, "peakMemory": used}
    body["status"]["usage"]["jobs"][claim["metadata"]["uid"]] |= uses
    await put_status(api, path, body["status"])


async def make_workloads(api: Api, name: str, vision: str, language: str) -> None:
    """A service and an idle notebook beside the jobs of the demo, and Pods that wait."""
    gpu = f"{name}-2"
    serve = await make_workload(
        api, "serve-5f6d8-x2x7k", vision, name, memory="8Gi", annotations={"partita.dev/framework": "PyTorch"}, **RUNNING,
    )  # fmt: skip
    await allocate(api, gpu, *serve, memory="8Gi", used="6100Mi", gpuUtilization=41)
    notebook = await make_workload(
        api, "notebook-0", language, name, memory="5Gi", kind="StatefulSet", **RUNNING
    )
    await allocate(api, gpu, *notebook, memory="5Gi", used="900Mi", idleSince=_time(5e3), minutes=9)
    await make_workload(
        api, "serve-5f6d8-q9v4t", vision, name, memory="8Gi", position=6,
        says=f"InsufficientMemory: needs 8.0 GiB of GPU memory; the most that is free is 2.2 GiB "
        f"of 37.2 GiB on {gpu}",
        starts={"earliest": _time(-5e3), "latest": _time(-9e3), "probability": 0.9},
    )  # fmt: skip
    await make_workload(
        api, "tune-m4kq2", language, name, memory="12Gi", kind="Job", restartPolicy="Never",
        gates=("kueue.x-k8s.io/admission",),
    )  # fmt: skip


@asynccontextmanager
async def pod_with_log(
    api: Api, namespace: str, name: str, text: str
) -> AsyncIterator[ContainerLog]:
    """Make a Pod on a node whose kubelet has its log so far; yield the log."""
    log = ContainerLog()
    log.write(text)
    kubelet = KubeletAPI({(namespace, name): {"main": log}})
    await kubelet.start()
    status = {
        "addresses": [{"type": "InternalIP", "address": KUBELET_HOST}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet.port}},
    }
    (await api.post("/api/v1/nodes", {"metadata": {"name": "logs"}, "status": status})).ok()
    spec = {"nodeName": "logs", "containers": [{"name": "main", "image": "program:1"}]}
    pod = {"metadata": {"name": name}, "spec": spec}
    (await api.post(f"/api/v1/namespaces/{namespace}/pods", pod)).ok()
    yield log
    await kubelet.stop()
    await api.delete("/api/v1/nodes/logs")
