"""Clusters to look at: a small one with a bit of everything, and a large one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from support.api import MERGE, Api

__all__ = ["GROUP_PATH", "make_demo", "make_job", "make_partition", "make_server", "put_status"]

Body = dict[str, Any]

GROUP_PATH = "/apis/partita.dev/v1alpha1"
A100 = "NVIDIA A100-SXM4-40GB"


def _time(minutes_ago: float) -> str:
    when = datetime.now(UTC) - timedelta(minutes=minutes_ago)
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")


async def put_status(api: Api, path: str, status: Body) -> Body:
    body: Body = (await api.patch(f"{path}/status", {"status": status}, MERGE)).ok().body
    return body


async def make_partition(api: Api, name: str, *, status: Body | None = None, **spec: Any) -> Body:
    body = {
        "apiVersion": "partita.dev/v1alpha1",
        "kind": "GPUPartition",
        "metadata": {"name": name},
        "spec": {"gpus": 2, **spec},
    }
    made: Body = (await api.post(f"{GROUP_PATH}/gpupartitions", body)).ok().body
    return await put_status(api, f"{GROUP_PATH}/gpupartitions/{name}", status) if status else made


async def make_job(
    api: Api,
    name: str,
    namespace: str,
    partition: str,
    *,
    memory: str = "4Gi",
    status: Body | None = None,
    **spec: Any,
) -> Body:
    body = {
        "apiVersion": "partita.dev/v1alpha1",
        "kind": "SharedGPUJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "partition": partition,
            "gpuMemory": memory,
            "template": {"spec": {"containers": [{"name": "main", "image": "program:1"}]}},
            **spec,
        },
    }
    path = f"{GROUP_PATH}/namespaces/{namespace}/sharedgpujobs"
    made: Body = (await api.post(path, body)).ok().body
    return await put_status(api, f"{path}/{name}", status) if status else made


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
    body = {
        "apiVersion": "partita.dev/v1alpha1",
        "kind": "GPUServer",
        "metadata": {"name": name},
        "spec": {"partition": partition},
    }
    (await api.post(f"{GROUP_PATH}/gpuservers", body)).ok()
    status = {
        "node": node,
        "uuid": f"GPU-{name}",
        "product": A100,
        "memory": "40Gi",
        "mps": {"state": mps, "clients": len(jobs)},
        "conditions": [{"type": condition, "status": "True"}, *_ready(condition)],
        "allocations": {
            job["metadata"]["uid"]: {
                "namespace": job["metadata"]["namespace"],
                "name": job["metadata"]["name"],
                "attempt": 1,
                "memory": allocated,
                "threadPercent": 50,
                "since": _time(20 - n),
            }
            for n, (job, allocated, _) in enumerate(jobs)
        },
        "usage": {
            "memory": f"{sum(int(used.removesuffix('Mi')) for _, _, used in jobs)}Mi",
            "gpuUtilization": busy,
            "jobs": {
                job["metadata"]["uid"]: {"memory": used, "peakMemory": used}
                for job, _, used in jobs
            },
        },
    }
    await put_status(api, f"{GROUP_PATH}/gpuservers/{name}", status)


def _ready(condition: str) -> list[Body]:
    return [] if condition == "Ready" else [{"type": "Ready", "status": "False"}]


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


async def make_demo(api: Api, name: str, namespaces: dict[str, str]) -> None:
    """Four GPUs, three teams, jobs in every state, and some hours of history.

    Parameters
    ----------
    namespaces
        The namespaces `vision`, `language` and `speech` by these names.
    """
    vision, language, speech = (namespaces[n] for n in ("vision", "language", "speech"))
    gpus = [f"{name}-{n}" for n in range(4)]
    status = {
        "policy": {"active": "lookahead", "cycles": 1284, "fallbacks": 2, "rejected": 0},
        "shadow": [
            {"name": "dqn", "cycles": 1284, "agreed": 1194, "placements": 402},
            {"name": "tetris", "cycles": 1284, "agreed": 885, "placements": 398},
        ],
        "conditions": [
            {"type": "PolicyHealthy", "status": "True", "reason": "Deciding"},
            {
                "type": "Degraded",
                "status": "True",
                "reason": "GPUsUnready",
                "message": f"{gpus[3]} is Faulted: its jobs were queued again, MPS is restarted",
            },
        ],
        "gpuSummary": [{"name": gpu, "state": "Ready"} for gpu in gpus[:3]],
    }
    await make_partition(
        api, name, gpus=4, policy={"name": "lookahead", "shadow": ["dqn", "tetris"]}, status=status
    )
    for job, team, first, minutes, memory, gpu in _PAST:
        done = {"phase": "Succeeded", "attempts": [_ran(first, minutes, memory, gpus[gpu])]}
        await make_job(api, job, namespaces[team], name, memory=memory, status=done)

    async def runs(job: str, team: str, first: float, memory: str, used: str, gpu: int) -> Any:
        now = {"phase": "Running", "attempts": [_ran(first, 0, memory, gpus[gpu])]}
        made = await make_job(api, job, team, name, memory=memory, status=now)
        return made, memory, used

    on = [
        [
            await runs("train-detector", vision, 96, "14Gi", "12900Mi", 0),
            await runs("asr-finetune", speech, 60, "12Gi", "9100Mi", 0),
            await runs("embed-docs", language, 22, "8Gi", "7900Mi", 0),
        ],
        [
            await runs("llm-adapter", language, 75, "20Gi", "19300Mi", 1),
            await runs("segment-tiles", vision, 41, "9Gi", "5200Mi", 1),
        ],
        [
            await runs("sweep-07", speech, 33, "6Gi", "4100Mi", 2),
            await runs("sweep-08", speech, 31, "6Gi", "5700Mi", 2),
            await runs("distill", language, 18, "10Gi", "6400Mi", 2),
        ],
    ]
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
