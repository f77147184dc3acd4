"""What users get wrong: each is refused or told in the status, and harms nobody else.

No mistake of a user leaves a stack trace or an error in the operator's log: the `system` fixture
checks the former for all tests, this file the latter.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from support.history import GROUP_PATH
from support.operator import System, container
from support.queues import LONG


@pytest.fixture(autouse=True)
def quiet(system: System, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """The log has neither errors nor stack traces, kopf's part of it included."""
    yield
    ours = [entry for entry in system.logs if entry["log_level"] in {"error", "critical"}]
    others = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert not ours + others
    assert "Traceback" not in caplog.text
    assert not any("Traceback" in json.dumps(entry, default=str) for entry in system.logs)


async def others_run(system: System, partition: str) -> None:
    """A proper job of the same partition starts and finishes."""
    job = await system.job("proper", partition, gpuMemory="4Gi")
    await job.succeeds()


async def refused(system: System, *words: str, **spec: Any) -> None:
    """The API server refuses such a job, in words that have these."""
    answer = await system.submit("refused", "gpus", **spec)
    assert answer.status == 422, answer
    for word in words:
        assert word in answer.body["message"]


def stalled(status: dict[str, Any]) -> bool:
    return {c["type"]: c["status"] for c in status["conditions"]}.get("Stalled") == "True"


async def test_a_job_of_an_unknown_partition_waits_says_so_and_starts_when_it_appears(
    system: System,
) -> None:
    async with system.running(1):
        other = await system.partition(name="other")
        name = system.named("gpus")
        job = await system.job("train", name, gpuMemory="4Gi")
        await job.waits("PartitionNotFound", f"there is no GPUPartition {name}", other)
        assert stalled(job.status)
        await system.scale(other, 0)
        await system.partition()
        await job.succeeds()
        assert job.outcomes == ["Succeeded"]


async def test_memory_larger_than_any_gpu_is_told_with_the_largest_and_blocks_nobody(
    system: System,
) -> None:
    async with system.running(1):
        partition = await system.partition(
            policy={"parameters": {"backfill": False}}, maxPriority=100
        )
        await system.ready(partition)
        job = await system.job("huge", partition, gpuMemory="400Gi", priority=100)
        await job.waits("NeverFits", "needs 400.0 GiB", "the largest GPU", "37.2 GiB")
        assert stalled(job.status)
        await others_run(system, partition)
        (await job.change(gpuMemory="4Gi")).ok()
        await job.succeeds()


OUT_OF_RANGE = [
    *(("gpuMemory", amount) for amount in ("lots", "4 Gi", "4GiB", "-4Gi", "0", "0Gi", -1, 0)),
    ("threadPercent", 0),
    ("threadPercent", 101),
    ("processes", 0),
    ("processes", -2),
    ("gpus", 0),
    ("activeDeadlineSeconds", 0),
    ("ttlSecondsAfterFinished", -1),
    ("expectedDuration", "soon"),
    ("framework", "Caffe"),
    ("retry", {"limit": -1}),
    ("retry", {"outOfMemory": {"growthPercent": 0}}),
    ("containers", []),
]


async def test_a_value_out_of_range_is_refused_by_its_name(system: System) -> None:
    for field, value in OUT_OF_RANGE:
        await refused(system, field, **{field: value})
    await refused(system, "write either slice, or gpuMemory", slice="small", gpuMemory="4Gi")


async def test_a_partition_that_asks_for_nonsense_is_refused(system: System) -> None:
    for spec, word in (
        ({"gpus": -1}, "gpus"),
        ({"gpus": 1, "sharing": {"memoryReservePercent": 51}}, "memoryReservePercent"),
        ({"gpus": 1, "slices": [{"name": "s", "memory": "much"}]}, "memory"),
        ({"gpus": 1, "quotas": [{"namespace": "a", "memory": "-1Gi"}]}, "memory"),
        ({"gpus": 1, "drainTimeout": "-5s"}, "drainTimeout"),
    ):
        body = {
            "apiVersion": "partita.dev/v1alpha1",
            "kind": "GPUPartition",
            "metadata": {"name": system.named("bad")},
            "spec": spec,
        }
        answer = await system.api.post(f"{GROUP_PATH}/gpupartitions", body)
        assert answer.status == 422
        assert word in answer.body["message"]


async def test_a_variable_that_we_set_is_ours_and_an_event_says_so(system: System) -> None:
    async with system.running(1):
        partition = await system.partition()
        env = [
            {"name": "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "value": "0=99999M"},
            {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
            {"name": "OTHER", "value": "stays"},
        ]
        job = await system.job(
            "greedy", partition, gpuMemory="4Gi", containers=[container(env=env)]
        )
        await job.succeeds()
        found = job.env()
        assert found["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=4096M"
        assert found["NVIDIA_VISIBLE_DEVICES"].startswith("GPU-")
        assert found["OTHER"] == "stays"
        for name in ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "NVIDIA_VISIBLE_DEVICES"):
            await system.history.until(
                lambda name=name: any(
                    "Variable" in reason and name in message
                    for reason, message in system.history.events("greedy")
                )
            )


FIXED = {
    "partition": "another",
    "gpuMemory": "8Gi",
    "threadPercent": 10,
    "processes": 2,
    "gpus": 2,
    "framework": "JAX",
}


async def test_what_a_running_job_holds_cannot_be_changed_and_the_answer_says_what_to_do(
    system: System,
) -> None:
    async with system.running(1):
        partition = await system.partition()
        job = await system.job("train", partition, gpuMemory="4Gi", sim=LONG)
        await job.runs()
        for field, value in FIXED.items():
            answer = await job.change(**{field: value})
            assert answer.status == 422
            assert "framework cannot change once the job has started" in answer.body["message"]
            assert "spec.suspend" in answer.body["message"]
        assert job.outcomes == [""]


async def test_somebody_else_s_pod_of_our_name_is_left_alone_and_the_job_runs(
    system: System,
) -> None:
    async with system.running(1):
        partition = await system.partition()
        await system.ready(partition)
        pods = f"/api/v1/namespaces/{system.namespace}/pods"
        meta = {"name": "train-1"}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta}
        foreign = (await system.api.post(pods, body | {"spec": {"containers": [container()]}})).ok()
        job = await system.job("train", partition, gpuMemory="4Gi")
        await job.succeeds()
        assert [attempt["pod"] for attempt in job.status["attempts"]] == ["train-2"]
        there = (await system.api.get(f"{pods}/train-1")).ok().body
        assert there["metadata"]["uid"] == foreign.body["metadata"]["uid"]
        assert not there["metadata"].get("ownerReferences")


async def test_a_pod_that_the_api_server_refuses_is_told_and_gives_its_allocation_back(
    system: System,
) -> None:
    async with system.running(1):
        partition = await system.partition()
        wrong = container(ports=[{"containerPort": "http"}])
        job = await system.job("wrong", partition, gpuMemory="30Gi", containers=[wrong])
        await job.waits("InvalidSpec", "containerPort", "correct spec.template")
        assert stalled(job.status)
        heir = await system.job("heir", partition, gpuMemory="30Gi")
        await heir.succeeds()
        template = {"spec": {"containers": [container()]}}
        (await job.change(template=template)).ok()
        await job.succeeds()


async def test_the_reason_appears_and_changes_with_what_changes(system: System) -> None:
    async with system.running(1):
        job = await system.job("train", system.named("gpus"), gpuMemory="39Gi")
        await job.waits("PartitionNotFound")
        partition = await system.partition(gpus=0, sharing={"maxJobsPerGPU": 1})
        await job.waits("NoGPUReady")
        await system.scale(partition, 1)
        await job.waits("NeverFits")
        quotas = [{"namespace": system.namespace, "jobs": 0}]
        await system.change_partition(partition, quotas=quotas)
        (await job.change(gpuMemory="4Gi")).ok()
        await job.waits("QuotaExceeded")
        (await job.change(suspend=True)).ok()
        await job.waits("Suspended")
        quotas = [{"namespace": system.namespace, "jobs": 1}]
        await system.change_partition(partition, quotas=quotas)
        (await job.change(suspend=False)).ok()
        await job.succeeds()
        reasons = [
            version["status"].get("reason")
            for version in system.history.versions("sharedgpujobs", "train", system.namespace)
            if version.get("status")
        ]
        assert reasons[-1] == "Succeeded"
