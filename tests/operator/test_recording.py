"""What the operator records, and what is made of it."""

from __future__ import annotations

import aiohttp

from partita_policies.recordings import Recorded, read_recordings
from partita_policies.registry import create
from partita_research.replay import Replay
from support.operator import System
from support.workloads import delete, submit


async def test_decisions_are_recorded_and_come_out_the_same_when_replayed(
    system: System, tmp_path
) -> None:
    async with system.nodes(1), system.operator(record=tmp_path / "recordings"):
        partition = await system.partition(policy={"name": "sjf"})
        jobs = [
            await system.job(f"for-{n}m", partition, gpuMemory="30Gi", expectedDuration=f"{n}m")
            for n in (3, 1, 2)
        ]
        for job in jobs:
            await job.succeeds()
        await system.settle()
    found = list(read_recordings([tmp_path / "recordings"]))
    recorded = [one for one in found if isinstance(one, Recorded)]
    assert recorded == found
    assert {one.snapshot.partition for one in recorded} == {partition}
    assert {one.decision.policy for one in recorded} == {"sjf"}
    assert sum(len(one.decision.placements) for one in recorded) == len(jobs)
    again, other = Replay("sjf", create("sjf")), Replay("fifo", create("fifo"))
    for one in recorded:
        again.ask(one)
        other.ask(one)
    assert (again.same, again.failures) == (len(recorded), [])
    assert other.started >= len(jobs)


async def test_claims_are_recorded_as_the_policies_see_them(system: System, tmp_path) -> None:
    async with system.nodes(1), system.operator(record=tmp_path / "recordings"):
        partition = await system.partition(policy={"name": "sjf", "shadow": ["fifo"]})
        await system.ready(partition)
        serve = await submit(system, "serve", partition, memory="4Gi", restartPolicy="Always")
        await serve.runs()
        notes = {"expected-duration": "2m", "application": "resnet"}
        train = await submit(system, "train", partition, memory="8Gi", annotations=notes)
        await train.runs()
        await system.partition_says(
            partition, lambda status: any(s.get("cycles") for s in status.get("shadow", ()))
        )
        for workload in (train, serve):
            await delete(workload)
            await workload.until(lambda w: not w.entries)
        await system.settle()
    recorded = [
        one for one in read_recordings([tmp_path / "recordings"]) if isinstance(one, Recorded)
    ]
    jobs = {job.id: job for one in recorded for job in one.snapshot.jobs}
    running = {r.job: r for one in recorded for gpu in one.snapshot.gpus for r in gpu.running}
    assert (jobs[train.uid].application, jobs[train.uid].duration) == ("resnet", 120.0)
    # A service is placed before the policy is asked, which sees it as running.
    assert serve.uid not in jobs
    assert running[serve.uid].lasting
    placed = [p.job for one in recorded for p in one.decision.placements]
    assert placed == [train.uid]
    again = Replay("sjf", create("sjf"))
    for one in recorded:
        again.ask(one)
    assert (again.same, again.failures) == (len(recorded), [])


async def test_jobs_run_and_health_tells_where_nothing_can_be_recorded(
    system: System, tmp_path, port: int
) -> None:
    (tmp_path / "a-file").write_text("in the way")
    record = tmp_path / "a-file" / "folder"
    async with system.nodes(1), system.operator(record=record, health_port=port):
        partition = await system.partition()
        await (await system.job("train", partition, gpuMemory="4Gi")).succeeds()
        url = f"http://127.0.0.1:{port}/healthz"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            said = await answer.text()
        await system.settle()
    assert answer.status == 200
    assert said.startswith(f"ok, but decisions are not recorded in {record}: ")
    assert len([log for log in system.logs if log["event"] == "not recording"]) == 1
