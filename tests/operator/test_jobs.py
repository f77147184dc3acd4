"""Every field of a SharedGPUJob does what it says."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from partita.models.quantities import parse_time
from support.operator import System
from support.queues import LONG


def seconds_between(earlier: str, later: str) -> float:
    return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds()


async def test_a_higher_priority_goes_first_and_the_older_first_among_equals(
    system: System,
) -> None:
    async with system.running(1):
        partition = await system.partition(maxPriority=10)
        blocker = await system.job("blocker", partition, gpuMemory="30Gi", sim=LONG)
        await blocker.runs()
        jobs = [
            await system.job(name, partition, gpuMemory="30Gi", priority=priority)
            for name, priority in (("low", -5), ("first", 0), ("second", 0), ("high", 7))
        ]
        for job in jobs:
            await job.waits("InsufficientMemory")
        await blocker.delete()
        for job in jobs:
            await job.succeeds()
        assert system.started() == ["blocker", "high", "first", "second", "low"]


async def test_a_running_job_that_is_suspended_ends_and_starts_anew_on_resume(
    system: System,
) -> None:
    async with system.running(1):
        partition = await system.partition()
        job = await system.job("train", partition, gpuMemory="4Gi", retry={"limit": 0}, sim=LONG)
        await job.runs()
        (await job.change(suspend=True)).ok()
        await job.phase("Suspended")
        assert job.outcomes == ["Suspended"]
        await system.history.until(lambda: not system.history.left_over())
        assert job.pod() is None
        template = job.body["spec"]["template"]
        template["metadata"]["annotations"]["sim.partita.dev/duration"] = "10s"
        (await job.change(suspend=False, template=template)).ok()
        await job.succeeds()
        assert job.outcomes == ["Suspended", "Succeeded"]


async def test_an_attempt_tells_what_came_before_its_first_use_of_the_gpu(
    system: System,
) -> None:
    async with system.running(1):
        partition = await system.partition()
        job = await system.job("train", partition, gpuMemory="4Gi", sim=LONG)
        await job.runs()

        def first_use() -> Any:
            (server,) = system.servers(partition)
            jobs = server["status"]["usage"].get("jobs") or {}
            return jobs.get(job.body["metadata"]["uid"], {}).get("firstUse")

        await system.history.until(first_use)
        await system.seen()
        (await job.change(suspend=True)).ok()
        (ended,) = (await job.phase("Suspended"))["attempts"]
        steps = ("queuedTime", "bookedTime", "startTime", "firstUseTime", "endTime")
        times = [parse_time(ended[step]) for step in steps]
        assert times == sorted(times)


async def test_a_program_that_fails_is_started_again_up_to_the_limit(system: System) -> None:
    async with system.running(1):
        partition = await system.partition()
        job = await system.job(
            "train",
            partition,
            gpuMemory="4Gi",
            retry={"limit": 2},
            sim={"exit_code": "3", "message": "no such file"},
        )
        status = await job.fails()
        assert job.outcomes == ["Failed"] * 3
        assert status["reason"] == "RetryLimitExceeded"
        assert "exit code 3" in status["message"]
        assert "no such file" in status["message"]
        assert [attempt["exitCode"] for attempt in status["attempts"]] == [3, 3, 3]


async def test_a_failed_job_is_retried_by_an_annotation(system: System) -> None:
    async with system.running(1):
        partition = await system.partition()
        job = await system.job(
            "train", partition, gpuMemory="4Gi", retry={"limit": 0}, sim={"exit_code": "1"}
        )
        await job.fails()
        again = {"metadata": {"annotations": {"partita.dev/retry": "once more"}}}
        (await system.api.patch(job.path, again)).ok()
        await job.until(lambda s: len(s.get("attempts", [])) == 2 and s["phase"] == "Failed")
        assert (job.status["retry"], job.status["retriedAfter"]) == ("once more", 1)
        assert job.outcomes == ["Failed"] * 2
        conditions = {c["type"]: c["status"] for c in job.status["conditions"]}
        assert conditions["Failed"] == "True"


async def test_a_job_over_its_deadline_is_ended_and_has_failed(system: System) -> None:
    async with system.running(1):
        partition = await system.partition()
        job = await system.job(
            "train", partition, gpuMemory="4Gi", activeDeadlineSeconds=1, sim=LONG
        )
        status = await job.fails()
        assert job.outcomes == ["DeadlineExceeded"]
        assert status["reason"] == "DeadlineExceeded"
        assert "activeDeadlineSeconds (1)" in status["message"]
        assert seconds_between(status["startTime"], status["completionTime"]) >= 1
        await system.history.until(lambda: job.pod() is None)


async def test_a_finished_job_is_deleted_when_its_time_to_live_is_over(system: System) -> None:
    async with system.running(1):
        partition = await system.partition()
        brief = await system.job("brief", partition, gpuMemory="4Gi", ttlSecondsAfterFinished=0)
        kept = await system.job("kept", partition, gpuMemory="4Gi")
        await brief.gone()
        last = system.history.versions("sharedgpujobs", "brief", system.namespace)[-1]
        assert last["status"]["phase"] == "Succeeded"
        await kept.succeeds()
        await system.history.until(lambda: brief.pod() is None)


async def test_no_more_processes_are_started_on_a_gpu_than_mps_serves(system: System) -> None:
    async with system.running(1):
        partition = await system.partition()
        many = await system.job("many", partition, gpuMemory="4Gi", processes=39, sim=LONG)
        await many.runs()
        more = await system.job("more", partition, gpuMemory="4Gi", processes=9)
        await more.waits("TooManyClients", "47 MPS clients", "needs 9")
        few = await system.job("few", partition, gpuMemory="4Gi", processes=8)
        await few.succeeds()
        await many.delete()
        await more.succeeds()


async def test_a_deleted_job_s_pod_ends_and_its_allocation_is_given_back(system: System) -> None:
    async with system.running(1):
        partition = await system.partition()
        running = await system.job("running", partition, gpuMemory="30Gi", sim=LONG)
        await running.runs()
        queued = await system.job("queued", partition, gpuMemory="30Gi")
        await queued.waits("InsufficientMemory")
        heir = await system.job("heir", partition, gpuMemory="30Gi")
        await heir.waits("InsufficientMemory")
        await queued.delete()
        await running.delete()
        await heir.succeeds()
        assert running.pod() is None
        assert system.started() == ["running", "heir"]


async def test_a_job_of_the_same_name_is_another_job(system: System) -> None:
    async with system.running(1):
        partition = await system.partition()
        first = await system.job("train", partition, gpuMemory="4Gi", sim=LONG)
        await first.runs()
        await first.delete()
        second = await system.job("train", partition, gpuMemory="6Gi")
        await second.succeeds()
        assert second.memories == ["6Gi"]


async def test_a_job_s_template_changed_while_it_waits_is_what_runs(system: System) -> None:
    async with system.running(1):
        partition = await system.partition()
        job = await system.job("train", partition, gpuMemory="4Gi", suspend=True)
        await job.phase("Suspended")
        containers = [{"name": "main", "image": "example.org/image:2"}]
        template = {"spec": {"containers": containers}}
        (await job.change(suspend=False, gpuMemory="5Gi", template=template)).ok()
        await job.succeeds()
        assert job.made()["spec"]["containers"][0]["image"] == "example.org/image:2"
        assert job.memories == ["5Gi"]


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
