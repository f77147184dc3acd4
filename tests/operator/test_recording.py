"""What the operator records, and what is made of it."""

from __future__ import annotations

from partita_policies.recordings import Recorded, read_recordings
from partita_policies.registry import create
from partita_research.replay import Replay
from support.polling import TIMEOUT
from support.system import System


async def test_decisions_are_recorded_and_come_out_the_same_when_replayed(
    system: System, tmp_path
) -> None:
    # A busy machine is late with both.
    system.set_times(pods_created=TIMEOUT, close_recording=TIMEOUT)
    async with system.nodes(1), system.operator(record=tmp_path / "recordings"):
        partition = await system.partition(policy={"name": "sjf"})
        jobs = [
            await system.job(f"for-{n}m", partition, gpuMemory="30Gi", expectedDuration=f"{n}m")
            for n in (3, 1, 2)
        ]
        for job in jobs:
            await job.succeeds()
        await system.settle()
    recorded = list(read_recordings([tmp_path / "recordings"]))
    assert {type(one) for one in recorded} == {Recorded}
    assert {one.snapshot.partition for one in recorded} == {partition}
    assert {one.decision.policy for one in recorded} == {"sjf"}
    assert sum(len(one.decision.placements) for one in recorded) == len(jobs)
    again, other = Replay("sjf", create("sjf")), Replay("fifo", create("fifo"))
    for one in recorded:
        again.ask(one)
        other.ask(one)
    assert (again.same, again.failures) == (len(recorded), [])
    assert other.started >= len(jobs)
