"""Jobs that are deleted once they have finished."""

from __future__ import annotations

from support.system import System


async def test_a_finished_job_is_deleted_when_its_time_to_live_is_over(system: System) -> None:
    """No other test uses the operator's right to delete jobs."""
    async with system.running(1):
        partition = await system.partition()
        brief = await system.job("brief", partition, gpuMemory="4Gi", ttlSecondsAfterFinished=0)
        kept = await system.job("kept", partition, gpuMemory="4Gi")
        await brief.gone()
        last = system.history.versions("sharedgpujobs", "brief", system.namespace)[-1]
        assert last["status"]["phase"] == "Succeeded"
        await kept.succeeds()
        await system.history.until(lambda: brief.pod() is None)
