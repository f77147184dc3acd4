"""Every field of a GPUPartition does what it says."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

from partita.embedded.nodes import NodeSpec
from partita.models.base import format_time
from support.history import GROUP_PATH
from support.operator import GIB, Job, System, env_of

LONG = {"duration": "1h"}
A100, H200 = "NVIDIA A100-SXM4-40GB", "NVIDIA H200"


async def blocked(system: System, partition: str, *names: str, **spec: Any) -> tuple[Job, ...]:
    """Submit a job that fills a GPU, and others that wait for it."""
    blocker = await system.job("blocker", partition, gpuMemory="37Gi", sim=LONG)
    await blocker.runs()
    jobs = [await system.job(name, partition, **spec) for name in names]
    for job in jobs:
        await job.until(lambda s: s.get("phase") == "Queued")
    return (blocker, *jobs)


# Quotas and namespaces.


async def test_a_namespace_holds_no_more_memory_than_its_quota(system: System) -> None:
    async with system.running(1):
        quota = {"namespace": system.namespace, "memory": "10Gi"}
        partition = await system.partition(quotas=[quota])
        first = await system.job("first", partition, gpuMemory="6Gi", sim=LONG)
        await first.runs()
        second = await system.job("second", partition, gpuMemory="6Gi")
        await second.waits("QuotaExceeded", "6.0 GiB of 10.0 GiB", system.namespace, "6.0 GiB")
        small = await system.job("small", partition, gpuMemory="4Gi")
        await small.succeeds()
        (await system.change_partition(partition, quotas=[quota | {"memory": "12Gi"}])).ok()
        await second.succeeds()


async def test_a_namespace_runs_no_more_jobs_than_its_quota(system: System) -> None:
    async with system.running(1):
        other = await system.another_namespace()
        partition = await system.partition(quotas=[{"namespace": system.namespace, "jobs": 1}])
        first = await system.job("first", partition, gpuMemory="1Gi", sim=LONG)
        await first.runs()
        second = await system.job("second", partition, gpuMemory="1Gi")
        await second.waits("QuotaExceeded", "1 of 1 jobs", system.namespace)
        foreign = await system.job("foreign", partition, gpuMemory="1Gi", namespace=other)
        await foreign.succeeds()
        await first.delete()
        await second.succeeds()


async def test_a_namespace_with_more_weight_gets_more_of_the_gpu(system: System) -> None:
    async with system.running(1):
        other = await system.another_namespace()
        partition = await system.partition(quotas=[{"namespace": other, "weight": 3}])
        (blocker,) = await blocked(system, partition)
        jobs = []
        for i in range(4):
            for namespace, name in ((system.namespace, "light"), (other, "heavy")):
                job = await system.job(
                    f"{name}-{i}", partition, gpuMemory="9Gi", namespace=namespace, sim=LONG
                )
                jobs.append(job)
        for job in jobs:
            await job.waits("InsufficientMemory")
        await blocker.delete()
        await system.history.until(lambda: len(system.started()) == 5)
        assert sorted(system.started()[1:]) == ["heavy-0", "heavy-1", "heavy-2", "light-0"]


async def test_only_allowed_namespaces_are_served_and_a_label_added_later_counts(
    system: System,
) -> None:
    async with system.running(1):
        friend = await system.another_namespace(team="vision")
        partition = await system.partition(allowedNamespaces={"matchLabels": {"team": "vision"}})
        welcome = await system.job("welcome", partition, gpuMemory="4Gi", namespace=friend)
        await welcome.succeeds()
        job = await system.job("train", partition, gpuMemory="4Gi")
        await job.waits("NamespaceNotAllowed", system.namespace)
        conditions = {c["type"]: c["status"] for c in job.status["conditions"]}
        assert conditions["Stalled"] == "True"
        labels = {"metadata": {"labels": {"team": "vision"}}}
        (await system.api.patch(f"/api/v1/namespaces/{system.namespace}", labels)).ok()
        await job.succeeds()


# Sizes.

SLICES = [
    {"name": "small", "memory": "4Gi", "threadPercent": 25},
    {"name": "medium", "memory": "8Gi", "threadPercent": 50},
    {"name": "large", "memory": "16Gi"},
]


async def test_a_job_gets_the_slice_that_it_names(system: System) -> None:
    async with system.running(1):
        partition = await system.partition(slices=SLICES)
        job = await system.job("train", partition, slice="medium")
        await job.succeeds()
        assert job.memories == ["8Gi"]
        assert env_of(job.made())["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=8192M"
        assert env_of(job.made())["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "50"


async def test_a_job_that_names_an_amount_gets_the_smallest_slice_that_holds_it(
    system: System,
) -> None:
    async with system.running(1):
        partition = await system.partition(slices=SLICES)
        job = await system.job("train", partition, gpuMemory="5Gi", threadPercent=40)
        whole = await system.job("whole", partition, gpuMemory="1Gi")
        await job.succeeds()
        await whole.succeeds()
        assert job.memories == ["8Gi"]
        assert whole.memories == ["4Gi"]  # unset asks for no share of the threads


async def test_a_job_that_outgrows_its_slice_gets_the_next(system: System) -> None:
    async with system.running(1):
        partition = await system.partition(slices=SLICES)
        job = await system.job("train", partition, slice="small", sim={"memory": "5Gi"})
        await job.succeeds()
        assert job.outcomes == ["OutOfMemory", "Succeeded"]
        assert job.memories == ["4Gi", "8Gi"]


async def test_a_job_larger_than_any_slice_says_which_there_are(system: System) -> None:
    async with system.running(1):
        partition = await system.partition(slices=SLICES)
        job = await system.job("train", partition, gpuMemory="20Gi")
        await job.waits("NeverFits", "small (4.0 GiB, 25 %)", "large (16.0 GiB, 100 %)")


async def test_the_reserve_of_a_gpu_is_never_booked(system: System) -> None:
    async with system.running(1):
        partition = await system.partition(sharing={"memoryReservePercent": 50})
        half = await system.job("half", partition, gpuMemory="20Gi")
        more = await system.job("more", partition, gpuMemory="20481Mi")
        await more.waits("NeverFits", "20.0 GiB to book")
        await half.succeeds()
        (await system.change_partition(partition, sharing={"memoryReservePercent": 0})).ok()
        await more.succeeds()


async def test_no_more_jobs_share_a_gpu_than_allowed(system: System) -> None:
    async with system.running(1):
        partition = await system.partition(sharing={"maxJobsPerGPU": 2})
        jobs = [
            await system.job(f"train-{i}", partition, gpuMemory="1Gi", sim=LONG) for i in range(2)
        ]
        for job in jobs:
            await job.runs()
        third = await system.job("third", partition, gpuMemory="1Gi")
        await third.waits("TooManyJobs", "2 places taken (sharing.maxJobsPerGPU)")
        await jobs[0].delete()
        await third.succeeds()


# Modes.


async def test_time_slicing_shares_a_gpu_without_mps(system: System) -> None:
    async with system.running(1):
        partition = await system.partition(sharing={"mode": "TimeSlicing"})
        jobs = [
            await system.job(f"train-{i}", partition, gpuMemory="10Gi", framework="CuPy")
            for i in range(3)
        ]
        for job in jobs:
            await job.succeeds()
            assert not [name for name in env_of(job.made()) if name.startswith("CUDA_MPS")]
            assert env_of(job.made())["CUPY_GPU_MEMORY_LIMIT"] == str(10 * GIB)
        assert len(jobs[2].status["attempts"][0]["beside"]) == 2
        (server,) = system.servers(partition)
        assert "mps" not in server["status"]


async def test_an_exclusive_gpu_runs_one_job_at_a_time_without_limits(system: System) -> None:
    async with system.running(1):
        partition = await system.partition(sharing={"mode": "Exclusive"})
        first = await system.job("first", partition, gpuMemory="1Gi", sim=LONG)
        await first.runs()
        second = await system.job("second", partition, gpuMemory="1Gi")
        await second.waits("GPUNotIdle")
        assert list(env_of(first.made())) == ["NVIDIA_VISIBLE_DEVICES"]
        await first.delete()
        await second.succeeds()


async def test_a_job_on_several_gpus_gets_them_on_one_node(system: System) -> None:
    async with system.running(1, 2):
        partition = await system.partition(gpus=3, sharing={"mode": "Exclusive"})
        await system.ready(partition, 3)
        job = await system.job("wide", partition, gpus=2, gpuMemory="4Gi", sim=LONG)
        status = await job.runs()
        assert status["assignment"]["node"] == system.named("n1")
        uuids = status["assignment"]["gpus"]
        assert len(set(uuids)) == 2
        assert env_of(job.made())["NVIDIA_VISIBLE_DEVICES"] == ",".join(uuids)
        resources = {f"gpu.partita.dev/{uuid[4:12]}": "1" for uuid in uuids}
        assert job.made()["spec"]["containers"][0]["resources"]["limits"] == resources
        booked = [s["status"].get("allocations") for s in system.servers(partition)]
        assert sum(job.uid in (entry or {}) for entry in booked) == 2
        wider = await system.job("wider", partition, gpus=3)
        await wider.waits("NeverFits", "needs 3 GPUs on one node", "at most 2")
        waiting = await system.job("waiting", partition, gpus=2)
        await waiting.waits("GPUNotIdle", "needs 2 idle GPUs on one node")
        await job.delete()
        await waiting.succeeds()


async def test_several_gpus_need_an_exclusive_partition(system: System) -> None:
    async with system.running(2):
        partition = await system.partition(gpus=2)
        job = await system.job("wide", partition, gpus=2, gpuMemory="4Gi")
        await job.waits("InvalidSpec", "gpus: 2 needs a partition with sharing.mode Exclusive")


async def test_a_changed_mode_reaches_each_gpu_when_its_jobs_have_ended(system: System) -> None:
    async with system.running(2):
        partition = await system.partition(gpus=2)
        await system.ready(partition, 2)
        running = await system.job("running", partition, gpuMemory="4Gi", sim=LONG)
        await running.runs()
        old = {s["metadata"]["uid"] for s in system.servers(partition)}
        (await system.change_partition(partition, sharing={"mode": "TimeSlicing"})).ok()
        later = await system.job("later", partition, gpuMemory="4Gi")
        await later.succeeds()
        assert "CUDA_MPS_PIPE_DIRECTORY" not in env_of(later.made())
        assert running.outcomes == [""]
        await running.delete()
        await system.history.until(
            lambda: not old & {s["metadata"]["uid"] for s in system.servers(partition)}
        )
        new = await system.ready(partition, 2)
        assert [server["spec"]["mode"] for server in new] == ["TimeSlicing"] * 2


# Which GPUs.


async def test_a_partition_takes_only_gpus_of_the_product_it_asks_for(system: System) -> None:
    specs = [NodeSpec("a", 1, 40 * GIB, A100), NodeSpec("h", 1, 141 * GIB, H200)]
    async with system.running(specs=specs):
        partition = await system.partition(gpus=2, gpuSelector={"products": ["NVIDIA-H200"]})
        job = await system.job("train", partition, gpuMemory="100Gi")
        await job.succeeds()
        status = await system.partition_says(partition, lambda s: s["gpus"] == 1)
        assert [g["product"] for g in status["gpuSummary"] if g["state"] == "Ready"] == [H200]
        states = sorted(gpu["state"] for gpu in status["gpuSummary"])
        assert states == ["Ready", "Starting"]  # the other waits for a node that has one


async def test_a_partition_takes_only_gpus_with_the_memory_it_asks_for(system: System) -> None:
    specs = [NodeSpec("a", 1, 40 * GIB, A100), NodeSpec("h", 1, 141 * GIB, H200)]
    async with system.running(specs=specs):
        partition = await system.partition(gpus=1, gpuSelector={"minMemory": "80Gi"})
        (server,) = await system.ready(partition)
        assert server["status"]["product"] == H200


async def test_a_gpu_that_is_no_longer_selected_takes_no_more_jobs(system: System) -> None:
    async with system.running(1):
        partition = await system.partition()
        running = await system.job("running", partition, gpuMemory="4Gi", sim=LONG)
        await running.runs()
        (await system.change_partition(partition, gpuSelector={"products": ["NVIDIA-L4"]})).ok()
        job = await system.job("train", partition, gpuMemory="4Gi")
        await job.waits("NoGPUReady")
        assert running.outcomes == [""]
        (await system.change_partition(partition, gpuSelector={"products": None})).ok()
        await job.succeeds()


async def test_server_pods_go_where_the_partition_says(system: System) -> None:
    async with system.running(1, 1):
        node = system.named("n1")
        partition = await system.partition(
            gpus=1,
            nodeSelector={"kubernetes.io/hostname": node},
            tolerations=[{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
        )
        taint = {"spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}}
        (await system.api.patch(f"/api/v1/nodes/{node}", taint)).ok()
        (server,) = await system.ready(partition)
        assert server["status"]["node"] == node


# Scaling.


async def test_a_waiting_job_starts_on_a_gpu_that_is_added(system: System) -> None:
    async with system.running(2):
        partition = await system.partition(gpus=1)
        _, job = await blocked(system, partition, "train", gpuMemory="30Gi")
        await job.waits("InsufficientMemory")
        await system.scale(partition, 2)
        await job.succeeds()
        status = await system.partition_says(partition, lambda s: s["gpus"] == 2)
        assert status["capacity"]["gpus"] == 2


async def test_no_gpus_can_be_had_and_said(system: System) -> None:
    async with system.running(1):
        partition = await system.partition(gpus=0)
        job = await system.job("train", partition, gpuMemory="4Gi")
        await job.waits("NoGPUReady", "raise spec.gpus")
        await system.scale(partition, 1)
        await job.succeeds()


async def test_a_gpu_given_back_finishes_its_jobs_and_takes_no_more(system: System) -> None:
    async with system.running(2):
        partition = await system.partition(gpus=2)
        await system.ready(partition, 2)
        jobs = [
            await system.job(f"train-{i}", partition, gpuMemory="30Gi", sim=LONG) for i in range(2)
        ]
        for job in jobs:
            await job.runs()
        (lasts,) = [j for j in jobs if j.status["assignment"]["servers"] == [f"{partition}-0"]]
        (drains,) = [job for job in jobs if job is not lasts]
        await system.scale(partition, 1)
        await system.history.until(
            lambda: system.servers(partition)[1]["metadata"].get("deletionTimestamp")
        )
        queued = await system.job("queued", partition, gpuMemory="5Gi")
        await queued.succeeds()
        assert queued.status["attempts"][0]["servers"] == [f"{partition}-0"]
        assert drains.outcomes == [""]
        await drains.delete()
        await system.history.until(lambda: len(system.servers(partition)) == 1)
        pods = [p["metadata"]["name"] for p in system.history.all("pods", "partita-system")]
        assert pods == [f"{partition}-0"]
        assert lasts.outcomes == [""]


async def test_an_idle_gpu_is_given_back_before_one_in_use(system: System) -> None:
    async with system.running(2):
        partition = await system.partition(gpus=2)
        await system.ready(partition, 2)
        first = await system.job("first", partition, gpuMemory="30Gi", sim=LONG)
        await first.runs()
        second = await system.job("second", partition, gpuMemory="30Gi", sim=LONG)
        await second.runs()
        await first.delete()
        await system.history.until(lambda: first.pod() is None)
        used = second.status["assignment"]["servers"]
        await system.history.until(
            lambda: (
                sum(bool(s["status"].get("allocations")) for s in system.servers(partition)) == 1
            )
        )
        await system.scale(partition, 1)
        await system.history.until(lambda: len(system.servers(partition)) == 1)
        assert [s["metadata"]["name"] for s in system.servers(partition)] == used
        assert second.outcomes == [""]


async def test_jobs_that_outlast_the_drain_timeout_are_queued_again(system: System) -> None:
    async with system.running(2):
        partition = await system.partition(gpus=2, drainTimeout="1s")
        await system.ready(partition, 2)
        jobs = [
            await system.job(f"train-{i}", partition, gpuMemory="30Gi", sim=LONG) for i in range(2)
        ]
        for job in jobs:
            await job.runs()
        (moves,) = [j for j in jobs if j.status["assignment"]["servers"] == [f"{partition}-1"]]
        (stays,) = [job for job in jobs if job is not moves]
        await system.scale(partition, 1)
        await moves.until(lambda s: s["attempts"][0].get("outcome") == "Evicted")
        await moves.waits("InsufficientMemory")
        await system.history.until(lambda: len(system.servers(partition)) == 1)
        await stays.delete()
        await moves.runs(attempt=2)


async def test_a_drained_gpu_lets_its_jobs_end_and_takes_no_more_until_it_is_told_to(
    system: System,
) -> None:
    async with system.running(1):
        partition = await system.partition(drainTimeout="1s")
        await system.ready(partition)
        job = await system.job("train", partition, gpuMemory="30Gi", sim=LONG)
        await job.runs()
        server = f"/apis/partita.dev/v1alpha1/gpuservers/{partition}-0"
        since = format_time(datetime.now(UTC))
        (await system.api.patch(server, {"spec": {"drainSince": since}})).ok()
        await job.until(lambda s: s["attempts"][0].get("outcome") == "Evicted")
        await system.partition_says(partition, lambda s: s["gpuSummary"][0]["state"] == "Drained")
        assert await job.waits("NoGPUReady")
        (await system.api.patch(server, {"spec": {"drainSince": None}})).ok()
        await job.runs(attempt=2)


async def test_scaling_down_and_up_again_at_once_ends_with_what_was_asked_last(
    system: System,
) -> None:
    async with system.running(3):
        partition = await system.partition(gpus=3)
        await system.ready(partition, 3)
        for gpus in (0, 2, 1, 3):
            await system.scale(partition, gpus)
            await asyncio.sleep(0)
        await system.ready(partition, 3)
        job = await system.job("train", partition, gpuMemory="4Gi")
        await job.succeeds()


# Who goes first.


async def test_a_job_of_higher_priority_ends_lower_ones_where_the_partition_allows_it(
    system: System,
) -> None:
    async with system.running(1):
        partition = await system.partition(preemption="LowerPriority")
        low = await system.job(
            "low", partition, gpuMemory="20Gi", priority=1, retry={"limit": 0}, sim=LONG
        )
        await low.runs()
        lowest = await system.job("lowest", partition, gpuMemory="10Gi", sim=LONG)
        await lowest.runs()
        high = await system.job("high", partition, gpuMemory="17Gi", priority=5, sim=LONG)
        await high.runs()
        assert lowest.outcomes == ["Preempted"]
        assert low.outcomes == [""]
        await lowest.waits("InsufficientMemory")
        assert "Preempted" in [reason for reason, _ in system.history.events("lowest")]
        await high.delete()
        await lowest.runs(attempt=2)


async def test_jobs_of_the_same_priority_end_nobody(system: System) -> None:
    async with system.running(1):
        partition = await system.partition(preemption="LowerPriority")
        _, job = await blocked(system, partition, "train", gpuMemory="4Gi")
        await job.waits("InsufficientMemory")


async def test_nobody_is_ended_where_the_partition_does_not_allow_it(system: System) -> None:
    async with system.running(1):
        partition = await system.partition()
        blocker, job = await blocked(system, partition, "train", gpuMemory="4Gi", priority=9)
        await job.waits("InsufficientMemory")
        assert blocker.outcomes == [""]


async def test_a_job_is_passed_over_only_so_often_whatever_the_policy_prefers(
    system: System,
) -> None:
    async with system.running(1):
        partition = await system.partition(
            policy={"name": "sjf", "parameters": {"exclusive": False}, "maxBypasses": 2}
        )
        (blocker,) = await blocked(system, partition)
        big = await system.job("big", partition, gpuMemory="30Gi", expectedDuration="5h")
        await big.waits("InsufficientMemory")
        small = [
            await system.job(f"small-{i}", partition, gpuMemory="30Gi", expectedDuration="1s")
            for i in range(6)
        ]
        for job in small:
            await job.waits("InsufficientMemory")
        await blocker.delete()
        for job in (big, *small):
            await job.succeeds()
        assert system.started().index("big") == 3  # the blocker, two that passed it, and it


async def test_a_gpu_is_held_for_a_large_job_that_small_ones_would_pass_for_ever(
    system: System,
) -> None:
    async with system.running(1):
        partition = await system.partition(policy={"maxBypasses": 1})
        first = await system.job("first", partition, gpuMemory="10Gi", sim=LONG)
        await first.runs()
        big = await system.job("big", partition, gpuMemory="36Gi")
        await big.waits("InsufficientMemory")
        second = await system.job("second", partition, gpuMemory="10Gi", sim=LONG)
        await second.runs()
        third = await system.job("third", partition, gpuMemory="10Gi")
        await third.waits("GPUHeld")
        await big.waits("GPUHeld", "is held for it")
        await first.delete()
        await second.delete()
        await big.succeeds()
        await third.succeeds()
        assert system.started()[-2:] == ["big", "third"]


async def test_an_operator_that_takes_over_knows_who_was_passed_over(system: System) -> None:
    async with system.nodes(1):
        async with system.operator():
            partition = await system.partition(policy={"maxBypasses": 1})
            first = await system.job("first", partition, gpuMemory="10Gi", sim=LONG)
            await first.runs()
            big = await system.job("big", partition, gpuMemory="36Gi")
            await big.waits("InsufficientMemory")
            second = await system.job("second", partition, gpuMemory="10Gi", sim=LONG)
            await second.runs()
            third = await system.job("third", partition, gpuMemory="10Gi")
            await third.waits("GPUHeld")
            await big.until(lambda status: status.get("bypasses") == 1)
            await third.delete()
        async with system.operator(identity="another"):
            fourth = await system.job("fourth", partition, gpuMemory="10Gi")
            await fourth.waits("GPUHeld")
            await first.delete()
            await second.delete()
            await big.succeeds()
            await fourth.succeeds()
            await system.settle()


# What the status tells.


async def test_the_status_counts_gpus_memory_and_jobs(system: System) -> None:
    async with system.running(2):
        partition = await system.partition(gpus=2, sharing={"memoryReservePercent": 0})
        job = await system.job("train", partition, gpuMemory="10Gi", sim=LONG)
        await job.runs()
        held = await system.job("held", partition, gpuMemory="10Gi", suspend=True)
        await held.phase("Suspended")
        status = await system.partition_says(
            partition,
            lambda s: (
                s["gpus"] == 2
                and s["allocated"]["jobs"] == 1
                and s["queue"]["suspended"] == 1
                and {c["type"]: c["status"] for c in s["conditions"]}["Ready"] == "True"
            ),
        )
        assert status["capacity"]["memory"] == "80Gi"
        assert status["capacity"]["jobs"] == 32
        assert status["allocated"]["memory"] == "10Gi"
        assert status["queue"]["running"] == 1
        assert status["policy"]["active"] == "fifo"
        scale = (await system.api.get(f"{GROUP_PATH}/gpupartitions/{partition}/scale")).ok().body
        assert scale["spec"]["replicas"] == 2
        assert scale["status"]["replicas"] == 2
