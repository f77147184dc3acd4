"""Jobs that wait while operators change, and jobs that are deleted once they have finished."""

from __future__ import annotations

from support.queues import LONG
from support.system import System


async def test_an_operator_that_takes_over_does_not_tell_anew_why_jobs_wait(
    system: System,
) -> None:
    async with system.nodes(1):
        async with system.operator():
            partition = await system.partition()
            blocker = await system.job("blocker", partition, gpuMemory="30Gi", sim=LONG)
            await blocker.runs()
            jobs = [await system.job(f"train-{i}", partition, gpuMemory="30Gi") for i in range(5)]
            for place, job in enumerate(jobs, start=1):
                await job.waits("InsufficientMemory")
                await job.until(lambda s, place=place: s.get("queuePosition") == place)
        before = [job.body for job in jobs]
        async with system.operator(identity="another"):
            # Creation times have no fractions: only its priority puts this job surely behind the others.
            last = await system.job("last", partition, gpuMemory="30Gi", priority=-1)
            await last.waits("InsufficientMemory")
            assert [job.body for job in jobs] == before
            await system.settle()


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
