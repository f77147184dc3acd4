"""Memory limits of the driver, where a probe Pod shows that they work."""

from __future__ import annotations

from partita_testcluster.nodes import NodeSpec
from support.claimed_env import parameters_of
from support.crds import SERVER_NAMESPACE
from support.queues import LONG
from support.system import GIB, System

R615 = NodeSpec("r615", 1, 40 * GIB, driver_version="615.71.09")
COMPONENT = "partita.dev/component"


async def test_jobs_get_the_drivers_limits_once_a_probe_has_shown_that_they_work(
    system: System,
) -> None:
    async with system.running(specs=[R615]):
        partition = await system.partition()
        job = await system.job("train", partition, gpuMemory="4Gi", sim=LONG)
        await job.runs()
        made = [versions[0].body for versions in system.history.lives("pods")]
        (probe,) = (p for p in made if p["metadata"].get("labels", {}).get(COMPONENT) == "probe")
        assert [slice_.memory for _, slice_ in parameters_of(system.history, probe)] == [1 << 20]
        assert job.env()["NVIDIA_GPU_MEMORY_LIMIT"] == str(4096 + 512)
        (server,) = await system.ready(partition)
        limits = [
            version["status"].get("enforcement")
            for version in system.history.versions("gpuservers", server["metadata"]["name"])
            if version.get("status", {}).get("allocations")
        ]
        assert set(limits) == {"Driver"}  # no job was placed before the probe had run
        await system.history.until(
            lambda: system.history.get("pods", probe["metadata"]["name"], SERVER_NAMESPACE) is None
        )
