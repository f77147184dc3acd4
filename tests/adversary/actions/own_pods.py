"""What a tenant does to the Pods of its own jobs."""

from __future__ import annotations

import asyncio

from adversary.actions import action
from adversary.attacker import LONG, Attacker
from support.builders import owner
from support.job import Job

METADATA = "`partita-metadata` rejects it"
ALLOCATED = "a Pod has its memory until it is deleted"
KEPT = f"{METADATA}; {ALLOCATED}, regardless of its labels"
OWN = "only the tenant's own attempt ends"


async def _big(attacker: Attacker, name: str) -> Job:
    """A job that takes nearly all that is left of a GPU: allocated twice, it is over capacity."""
    job = await attacker.job(name, gpuMemory="14Gi", sim=LONG)
    await job.runs()
    return job


async def _another_big(attacker: Attacker) -> None:
    """Offer the operator what does not fit beside the big one on a GPU, or in the quota."""
    for number in range(2):
        await attacker.job(f"more-{number}", gpuMemory="14Gi", sim=LONG)


@action(KEPT)
async def own_pod_without_its_labels(attacker: Attacker) -> None:
    """Removing the labels of the Pod of a job that runs, then asking for as much again."""
    await _big(attacker, "hog")
    labels = {f"partita.dev/{key}": None for key in ("component", "job", "attempt", "partition")}
    await attacker.forge_metadata("hog-1", {"labels": labels})
    await _another_big(attacker)


@action(KEPT)
async def own_pod_without_its_annotations(attacker: Attacker) -> None:
    """Removing the annotations of the Pod of a job that runs, then deleting the job."""
    job = await _big(attacker, "hog")
    keys = ("job-uid", "gpu-memory", "processes")
    annotations = {f"partita.dev/{key}": None for key in keys}
    await attacker.forge_metadata("hog-1", {"annotations": annotations})
    await job.delete()
    await _another_big(attacker)
    await job.gone()
    history = attacker.cluster.history
    await history.until(lambda: job.pod() is None)
    # Nothing is left allocated for what is no more.
    await history.until(
        lambda: all(
            job.uid != entry.get("jobUID")
            for gpu in history.all("gpuservers")
            for entry in gpu["status"].get("allocations", {}).values()
        ),
        what=lambda: history.all("gpuservers"),
    )


@action(f"{METADATA}; the GPUServer's status says what is allocated, not the Pod")
async def own_pod_with_another_amount(attacker: Attacker) -> None:
    """Writing another amount of memory, UID and attempt on the Pod of a job that runs."""
    victim = attacker.cluster.running[0]
    await _big(attacker, "hog")
    annotations = {"partita.dev/gpu-memory": "1Mi", "partita.dev/job-uid": victim.uid}
    labels = {"partita.dev/attempt": "7", "partita.dev/job": victim.name}
    await attacker.forge_metadata("hog-1", {"annotations": annotations, "labels": labels})
    await _another_big(attacker)


@action(KEPT)
async def own_pod_given_to_another_job(attacker: Attacker) -> None:
    """Making a victim's job the owner of the Pod of a job that runs."""
    victim = attacker.cluster.running[0]
    await _big(attacker, "hog")
    owners = [owner("SharedGPUJob", victim.name, victim.uid)]
    await attacker.forge_metadata("hog-1", {"ownerReferences": owners})
    await _another_big(attacker)


@action(ALLOCATED)
async def own_job_deleted_without_its_pod(attacker: Attacker) -> None:
    """`kubectl delete sharedgpujob --cascade=orphan`: the Pod runs on without its job."""
    job = await _big(attacker, "hog")
    await attacker.api.delete(job.path, {"propagationPolicy": "Orphan"})
    await job.gone()
    await _another_big(attacker)


@action(
    "an attempt has one Pod; a deleted Pod ends the attempt, and the next attempt has another number"
)
async def own_pods_deleted_by_force(attacker: Attacker) -> None:
    """Deleting the Pod of a job without grace, again and again: it is gone as soon as it is made."""
    job = await attacker.job("hog", gpuMemory="4Gi", sim=LONG)
    for attempt in range(1, 4):
        await job.until(lambda s, n=attempt: len(s.get("attempts", ())) == n)  # type: ignore[misc]
        options = {"gracePeriodSeconds": 0}
        await attacker.api.delete(attacker.path("pods", f"hog-{attempt}"), options)


@action(
    "the kubelet keeps the last 4 KiB and the operator 2,048 characters; the page displays text as text"
)
async def pod_that_ends_with_strange_last_words(attacker: Attacker) -> None:
    """Programs that fail with the words of others' faults, markup, terminal codes, and 200 KiB."""
    words = (
        "CUDA error: cudaErrorMpsClientTerminated",
        "<script>alert(1)</script><img src=x onerror=alert(1)>",
        "\x1b[2J\x1b]0;owned\x07\r\nlevel=error msg=forged\n{}",
        "\u202e\ufffe" + "x" * 200_000,
        "Xid 79: GPU has fallen off the bus",
    )
    jobs = [
        await attacker.job(
            f"says-{n}",
            gpuMemory="1Gi",
            retry={"limit": 0},
            sim={"duration": "1s", "exit_code": "137", "message": text},
        )
        for n, text in enumerate(words)
    ]
    await asyncio.gather(*(job.fails() for job in jobs))
    for job in jobs:
        assert len(job.status["message"]) <= 4096
