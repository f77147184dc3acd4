"""What a job is given that does not say how much memory it needs."""

from __future__ import annotations

from support.history import GROUP_PATH
from support.queues import LONG
from support.system import System


async def test_a_job_that_learns_its_memory_while_it_waits_no_longer_wants_to_be_alone(
    system: System,
) -> None:
    async with system.running(1):
        partition = await system.partition()
        blocker = await system.job("blocker", partition, gpuMemory="4Gi", sim=LONG)
        await blocker.runs()
        job = await system.job("train", partition, application="resnet")
        await job.waits("GPUNotIdle")
        path = f"{GROUP_PATH}/namespaces/{system.namespace}/applicationprofiles"
        measured = {"duration": "60s", "steps": [{"gpuMemory": "2Gi"}]}
        spec = {"application": "resnet", "measurements": [measured]}
        kind = {"apiVersion": "partita.dev/v1alpha1", "kind": "ApplicationProfile"}
        (await system.api.post(path, {**kind, "metadata": {"name": "resnet"}, "spec": spec})).ok()
        await job.succeeds()
        assert blocker.outcomes == [""]
