"""Jobs start only on nodes that can run their Pods, and say why where none can."""

from __future__ import annotations

from typing import Any

from partita_testcluster.nodes.gpu import GIB
from partita_testcluster.nodes.node import NodeSpec
from support.job import container
from support.system import System

SMALL = {"cpu": "4", "memory": "16Gi", "ephemeral-storage": "50Gi", "pods": "110"}


def asking(cpu: str) -> list[dict[str, Any]]:
    return [container(resources={"requests": {"cpu": cpu}})]


async def test_cpu_that_pods_of_others_have_is_not_given_to_jobs(system: System) -> None:
    async with system.running(specs=[NodeSpec("n0", 1, 40 * GIB, allocatable=SMALL)]):
        partition = await system.partition()
        await system.ready(partition)
        path = f"/api/v1/namespaces/{system.namespace}/pods"
        spec = {"nodeName": system.named("n0"), "containers": asking("3")}
        await system.seen(
            (await system.api.post(path, {"metadata": {"name": "web"}, "spec": spec})).ok()
        )
        job = await system.job("train", partition, gpuMemory="4Gi", containers=asking("2"))
        await job.waits("InsufficientNodeResources", "needs 2 CPUs")
        assert job.pod() is None
        (await system.api.delete(f"{path}/web", {"gracePeriodSeconds": 0})).ok()
        await job.succeeds()
