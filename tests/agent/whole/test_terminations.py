"""Many jobs are ended while they use the GPU, at random: their neighbours lose nothing.

`make test-terminations` does so 1,000 times. The test plays the operator and kubelet of
`partita.pods.termination`: mark, sleep, SIGTERM, SIGKILL at the end of the grace period. The sleep
ends early once nothing is left that SIGTERM would kill.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable

import pytest

from agent.node import Job, Node, condition, serve
from partita.agent import client_termination
from partita.pods.termination import PRE_STOP_SLEEP, TERMINATE_BEFORE_KILL

AT_ONCE = 6
"""Jobs that are ended at the same time."""
GRACE = 1.0
"""Seconds of a program's own grace period."""
SAVES, TOO_LATE = "sigterm:100", "sigterm:3600000"
"""A program that saves its state within the grace period, and one that does not."""
KINDS: dict[str, tuple[tuple[str, ...], ...]] = {
    "dies of SIGTERM": ((),),
    "saves its state": ((SAVES,),),
    "is too late": ((TOO_LATE,),),
    "two processes": ((), ()),
    "a worker beside one that saves": ((), (SAVES,)),
}


@pytest.fixture(autouse=True)
def frequent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_termination, "CHECK_EVERY", 0.1)


class Ends:
    """What became of the programs that were ended."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.seconds: list[float] = []
        """From the mark to the last termination before SIGTERM."""


async def exited(program: subprocess.Popen[str], seconds: float) -> bool:
    """Wait for a program's end, for so long."""
    end = time.monotonic() + seconds
    while program.poll() is None and time.monotonic() < end:
        await asyncio.sleep(0.02)
    return program.poll() is not None


async def end(job: Job, programs: dict[subprocess.Popen[str], tuple[str, ...]], ends: Ends) -> None:
    """End a job's Pod as operator and kubelet do."""
    began = time.monotonic()
    whole = PRE_STOP_SLEEP + GRACE + TERMINATE_BEFORE_KILL
    await job.is_ended(whole)
    for program, steps in programs.items():
        if not steps:
            in_time = await exited(program, PRE_STOP_SLEEP - (time.monotonic() - began))
            ends.counts["terminated before SIGTERM" if in_time else "SIGTERM in flight"] += 1
    ends.seconds.append(time.monotonic() - began)
    alive = [program for program in programs if program.poll() is None]
    for program in alive:
        program.send_signal(signal.SIGTERM)
    for program in alive:
        if await exited(program, whole - (time.monotonic() - began)):
            kind = "saved" if program.returncode == 0 else "terminated before SIGKILL"
            ends.counts[kind] += 1
        else:
            program.kill()
            ends.counts["SIGKILL in flight"] += 1


async def run_and_end(node: Node, name: str, chance: random.Random, ends: Ends) -> None:
    """Run a job, end it at a random time while it uses the GPU, and release its allocation."""
    job = await node.allocate(name, 300)
    kind = chance.choice(sorted(KINDS))
    ends.counts["jobs"] += 1
    programs = {job.run(*steps, "alloc:10", "forever"): steps for steps in KINDS[kind]}
    while not all(program.pid in node.gpus.pids() for program in programs):
        assert all(program.poll() is None for program in programs), "it never ran"
        await asyncio.sleep(0.02)
    await asyncio.sleep(chance.uniform(0.0, 0.3))
    await end(job, programs, ends)
    for program in programs:
        await asyncio.to_thread(program.communicate)
    await job.release()


@pytest.mark.timeout(3600)
async def test_terminations_in_flight_cost_no_neighbour_its_work(
    node: Node, pytestconfig: pytest.Config, record_property: Callable[[str, object], None]
):
    total = int(pytestconfig.getoption("--terminations", default=12))
    chance = random.Random(total)
    await serve(node)
    neighbours = [
        (await node.allocate(f"neighbour-{n}", 1000)).run("alloc:500", "forever") for n in range(2)
    ]
    numbers, ends = itertools.count(), Ends()

    async def work() -> None:
        while (number := next(numbers)) < total:
            await run_and_end(node, f"job-{number}", chance, ends)
            assert all(program.poll() is None for program in neighbours)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(AT_ONCE, total)):
            group.create_task(work())
    figures = dict(ends.counts) | {"longest (s)": round(max(ends.seconds), 2)}
    record_property("terminations", figures)
    print(figures)  # noqa: T201 - the result
    assert ends.counts["jobs"] == total
    assert ends.counts["SIGTERM in flight"] == ends.counts["SIGKILL in flight"] == 0
    assert condition(await node.body(), "Ready")[0] == "True"
    assert all(program.poll() is None for program in neighbours)
