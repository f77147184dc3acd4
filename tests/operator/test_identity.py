"""A Pod is known by what its tenant cannot write: its UID stands in the job and in the ledger."""

from __future__ import annotations

from support.queues import LONG
from support.system import System


async def test_the_allocation_of_a_deleted_job_stays_while_its_orphaned_pod_runs(
    system: System,
) -> None:
    """A user who may write Pods takes the job off its Pod, and deletes the job."""
    async with system.nodes(1):
        async with system.operator():
            partition = await system.partition()
            hog = await system.job("hog", partition, gpuMemory="30Gi", sim=LONG)
            status = await hog.runs()
            pod = hog.pod()
            assert pod is not None
            assert status["attempts"][0]["podUID"] == pod["metadata"]["uid"]
            path = f"/api/v1/namespaces/{system.namespace}/pods/hog-1"
            free = {"metadata": {"ownerReferences": None}}
            await system.seen((await system.api.patch(path, free)).ok())
            await hog.delete()
        async with system.operator():
            second = await system.job("second", partition, gpuMemory="30Gi", sim=LONG)
            await second.waits("InsufficientMemory")
            there = (await system.api.get(path)).ok().body
            assert "deletionTimestamp" not in there["metadata"]
            (await system.api.delete(path)).ok()
            await second.runs()
            await system.settle()
