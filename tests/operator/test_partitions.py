"""Every field of a GPUPartition does what it says."""

from __future__ import annotations

from partita_testcluster.nodes import NodeSpec
from support.claimed_env import parameters_of
from support.history import GROUP_PATH
from support.operator import GIB, System, gpu_states
from support.queues import LONG

A100, H200 = "NVIDIA A100-SXM4-40GB", "NVIDIA H200"


# Quotas and namespaces.


async def test_a_small_quota_of_memory_takes_not_all_mps_clients(system: System) -> None:
    async with system.running(1):
        quota = {"namespace": system.namespace, "memory": "1Gi", "jobs": 2}
        partition = await system.partition(quotas=[quota])
        greedy = await system.job("greedy", partition, gpuMemory="64Mi", processes=40)
        await greedy.waits("QuotaExceeded", "MPS clients of namespace", "this needs 40")
        modest = await system.job("modest", partition, gpuMemory="64Mi", processes=2)
        await modest.succeeds()
        await system.change_partition(partition, quotas=[quota | {"processes": 40}])
        await greedy.succeeds()


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
        assert job.env()["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=8192M"
        assert job.env()["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "50"


async def test_the_reserve_of_a_gpu_is_never_allocated(system: System) -> None:
    async with system.running(1):
        partition = await system.partition(sharing={"memoryReservePercent": 50})
        half = await system.job("half", partition, gpuMemory="20Gi")
        more = await system.job("more", partition, gpuMemory="20481Mi")
        await more.waits("NeverFits", "20.0 GiB allocatable")
        await half.succeeds()
        await system.change_partition(partition, sharing={"memoryReservePercent": 0})
        await more.succeeds()


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
            assert not [name for name in job.env() if name.startswith("CUDA_MPS")]
            assert job.env()["CUPY_GPU_MEMORY_LIMIT"] == str(10 * GIB)
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
        assert list(first.env()) == ["NVIDIA_VISIBLE_DEVICES"]
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
        assert job.env()["NVIDIA_VISIBLE_DEVICES"] == ",".join(uuids)
        claimed = [slice_.gpu for _, slice_ in parameters_of(system.history, job.made())]
        assert claimed == uuids
        allocated = [s["status"].get("allocations") for s in system.servers(partition)]
        assert sum(job.uid in (entry or {}) for entry in allocated) == 2
        wider = await system.job("wider", partition, gpus=3)
        await wider.waits("NeverFits", "needs 3 GPUs on one node", "at most 2")
        waiting = await system.job("waiting", partition, gpus=2)
        await waiting.waits("GPUNotIdle", "needs 2 idle GPUs on one node")
        await job.delete()
        await waiting.succeeds()


async def test_a_changed_mode_reaches_each_gpu_when_its_jobs_have_ended(system: System) -> None:
    async with system.running(2):
        partition = await system.partition(gpus=2)
        await system.ready(partition, 2)
        running = await system.job("running", partition, gpuMemory="4Gi", sim=LONG)
        await running.runs()
        old = {s["metadata"]["uid"] for s in system.servers(partition)}
        await system.change_partition(partition, sharing={"mode": "TimeSlicing"})
        later = await system.job("later", partition, gpuMemory="4Gi")
        await later.succeeds()
        assert "CUDA_MPS_PIPE_DIRECTORY" not in later.env()
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
        status = await system.partition_says(  # the other waits for a node that has one
            partition,
            lambda s: sorted(gpu_states(s).values()) == ["Ready", "Unschedulable"],
        )
        assert [g["product"] for g in status["gpuSummary"] if g["state"] == "Ready"] == [H200]


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
