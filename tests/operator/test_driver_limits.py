"""Memory limits of the driver, where a probe Pod shows that they work."""

from __future__ import annotations

from typing import Any

from partita.models import GPUPartition, GPUServer
from partita.pods import ServerPodSettings
from partita.pods.probe_pod import build_probe_pod
from partita_testcluster.nodes import NodeSpec
from support.claimed_env import parameters_of
from support.history import GROUP_PATH
from support.operator import GIB, SERVER_NAMESPACE, System, condition, gpu_states
from support.queues import LONG

R615 = NodeSpec("r615", 1, 40 * GIB, driver_version="615.71.09")
R580 = NodeSpec("r580", 1, 40 * GIB)
LIMIT = "NVIDIA_GPU_MEMORY_LIMIT"
COMPONENT = "partita.dev/component"


def probes(system: System) -> list[dict[str, Any]]:
    """All probe Pods that ever were, as they were made."""
    made = [versions[0].body for versions in system.history.lives("pods")]
    return [p for p in made if p["metadata"].get("labels", {}).get(COMPONENT) == "probe"]


async def no_probe_is_left(system: System) -> None:
    await system.history.until(
        lambda: all(
            versions[-1].kind == "DELETED"
            for versions in system.history.lives("pods")
            if versions[0].body["metadata"].get("labels", {}).get(COMPONENT) == "probe"
        )
    )


async def test_jobs_get_the_drivers_limits_once_a_probe_has_shown_that_they_work(
    system: System,
) -> None:
    async with system.running(specs=[R615]):
        partition = await system.partition()
        job = await system.job("train", partition, gpuMemory="4Gi", sim=LONG)
        await job.runs()
        (probe,) = probes(system)
        assert [slice_.memory for _, slice_ in parameters_of(system.history, probe)] == [1 << 20]
        assert job.env()[LIMIT] == str(4096 + 512)
        (server,) = await system.ready(partition)
        assert server["status"]["enforcement"] == "Driver"
        await no_probe_is_left(system)


async def test_no_job_is_placed_before_the_probe_has_run(system: System) -> None:
    async with system.running(specs=[R615]):
        partition = await system.partition()
        job = await system.job("train", partition, gpuMemory="4Gi")
        await job.succeeds()
        (server,) = system.servers(partition)
        allocated = [
            version.get("status", {}).get("enforcement")
            for version in system.history.versions("gpuservers", server["metadata"]["name"])
            if version.get("status", {}).get("allocations")
        ]
        assert set(allocated) == {"Driver"}


async def test_a_gpu_that_cannot_do_what_is_required_takes_no_jobs_until_it_is_not(
    system: System,
) -> None:
    async with system.running(specs=[R580]):
        partition = await system.partition(sharing={"enforcement": "Driver"})
        job = await system.job("train", partition, gpuMemory="4Gi")
        await job.waits("NoGPUReady")
        status = await system.partition_says(
            partition,
            lambda s: list(gpu_states(s).values()) == ["Unready"],
        )
        assert "install driver 615 or later" in status["gpuSummary"][0]["message"]
        before = system.servers(partition)[0]["metadata"]["uid"]
        await system.change_partition(partition, sharing={"enforcement": "Auto"})
        await job.succeeds()
        assert system.servers(partition)[0]["metadata"]["uid"] == before


async def test_client_limits_need_no_probe_and_are_taken_up_while_jobs_run(
    system: System,
) -> None:
    async with system.running(specs=[R615]):
        partition = await system.partition(sharing={"enforcement": "Client"})
        old = await system.job("old", partition, gpuMemory="4Gi", sim=LONG)
        await old.runs()
        assert probes(system) == []
        assert LIMIT not in old.env()
        await system.change_partition(partition, sharing={"enforcement": "Auto"})
        await system.history.until(
            lambda: system.servers(partition)[0]["status"].get("enforcement") == "Driver"
        )
        new = await system.job("new", partition, gpuMemory="4Gi", sim=LONG)
        await new.runs()
        assert LIMIT in new.env()
        assert old.outcomes == [""]


async def test_a_probe_that_an_operator_left_behind_is_deleted_by_the_next(
    system: System,
) -> None:
    async with system.nodes(specs=[R615]):
        partition = await system.partition()
        async with system.operator():
            (server,) = await system.ready(partition)
            await no_probe_is_left(system)
        settings = ServerPodSettings(SERVER_NAMESPACE, "partita:1", "partita-agent")
        wanted = GPUPartition.parse({"metadata": {"name": partition}, "spec": {"gpus": 1}})
        left = build_probe_pod(GPUServer.parse(server), wanted, settings)
        (await system.api.post(f"/api/v1/namespaces/{SERVER_NAMESPACE}/pods", left)).ok()
        async with system.operator():
            await no_probe_is_left(system)


async def test_an_attempt_with_a_wrong_limit_is_a_system_failure_where_the_driver_must_limit(
    system: System,
) -> None:
    async with system.running(specs=[R615]):
        partition = await system.partition(sharing={"enforcement": "Driver"})
        job = await system.job("train", partition, gpuMemory="4Gi", sim=LONG)
        await job.runs()
        (server,) = system.servers(partition)
        mismatch = {"attempt": 1, "expected": "4608Mi", "found": "40Gi"}
        usage = {"jobs": {job.uid: {"memory": "1Gi", "limitMismatch": mismatch}}}
        path = f"{GROUP_PATH}/gpuservers/{server['metadata']['name']}/status"
        (await system.api.patch(path, {"status": {"usage": usage}})).ok()
        await job.until(lambda s: s["attempts"][0].get("outcome"))
        ended = job.status["attempts"][0]
        assert ended["outcome"] == "SystemFailure"
        assert "has the limit 40.0 GiB of GPU memory instead of 4.5 GiB" in ended["message"]
        assert condition(server, "DriverLimits")[0] == "True"
        await job.runs(attempt=2)
