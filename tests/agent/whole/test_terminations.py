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
from functools import partial

import pytest

from agent.claims import Claim, allocate
from agent.node import Node, serve
from partita.pods.termination import PRE_STOP_SLEEP, TERMINATE_BEFORE_KILL
from support.polling import holds_within, until

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


async def exited(program: subprocess.Popen[str], seconds: float) -> bool:
    """Wait for a program's end, for so long."""
    return await asyncio.to_thread(holds_within, lambda: program.poll() is not None, seconds)


async def end(
    job: Claim, programs: dict[subprocess.Popen[str], tuple[str, ...]], ends: Counter[str]
) -> None:
    """End a job's Pod as operator and kubelet do."""
    began = time.monotonic()
    whole = PRE_STOP_SLEEP + GRACE + TERMINATE_BEFORE_KILL
    await job.is_ended(whole)
    for program, steps in programs.items():
        if not steps:
            in_time = await exited(program, 4 * PRE_STOP_SLEEP - (time.monotonic() - began))
            ends["terminated before SIGTERM" if in_time else "SIGTERM in flight"] += 1
    alive = [program for program in programs if program.poll() is None]
    for program in alive:
        program.send_signal(signal.SIGTERM)
    for program in alive:
        if await exited(program, 4 * whole - (time.monotonic() - began)):
            kind = "saved" if program.returncode == 0 else "terminated before SIGKILL"
            ends[kind] += 1
        else:
            program.kill()
            ends["SIGKILL in flight"] += 1


def has_started_or_ended(program: subprocess.Popen[str], node: Node) -> bool:
    return program.poll() is not None or program.pid in node.gpus.pids()


async def start(job: Claim, steps: tuple[str, ...], ends: Counter[str]) -> subprocess.Popen[str]:
    """Start a program; again if MPS refuses it, as it does while it terminates another client."""
    while True:
        program = job.run(*steps, "alloc:10", "forever")
        await until(partial(has_started_or_ended, program, job.node))
        if program.poll() is None:
            return program
        said = (await asyncio.to_thread(program.communicate))[1]
        assert "MPS server is not ready to accept" in said
        ends["refused at the start"] += 1


async def run_and_end(node: Node, name: str, chance: random.Random, ends: Counter[str]) -> None:
    """Run a job, end it at a random time while it uses the GPU, and release its allocation."""
    job = await allocate(node, name, 300)
    kind = chance.choice(sorted(KINDS))
    ends["jobs"] += 1
    programs = {await start(job, steps, ends): steps for steps in KINDS[kind]}
    await asyncio.sleep(chance.uniform(0.0, 0.3))
    await end(job, programs, ends)
    for program in programs:
        await asyncio.to_thread(program.communicate)
    code = max(program.returncode for program in programs)
    await job.ends("Failed" if code else "Succeeded", code)
    await job.release()


@pytest.mark.timeout(3600)
async def test_terminations_in_flight_cost_no_neighbour_its_work(
    node: Node, pytestconfig: pytest.Config, record_property: Callable[[str, object], None]
):
    total = int(pytestconfig.getoption("--terminations"))
    chance, numbers = random.Random(total), itertools.count()
    ends: Counter[str] = Counter()
    await serve(node)
    node.gpus.mps(kill="fault")  # what NVIDIA has confirmed of a program killed in flight
    jobs = [await allocate(node, f"neighbour-{number}", 1000) for number in range(2)]
    neighbours = [job.run("alloc:500", "forever") for job in jobs]
    await until(lambda: node.gpus.pids().keys() == {program.pid for program in neighbours})

    async def work() -> None:
        while ends["jobs"] < total:
            await run_and_end(node, f"job-{next(numbers)}", chance, ends)
            assert all(program.poll() is None for program in neighbours)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work())
    record_property("terminations", dict(ends))
    print(dict(ends))  # noqa: T201 - the result
    assert ends["SIGTERM in flight"] == ends["SIGKILL in flight"] == 0
