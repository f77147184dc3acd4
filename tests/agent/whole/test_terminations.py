"""Many jobs are ended while they use the GPU, at random: their neighbours lose nothing.

`make test-terminations` does so 1,000 times. Now and then a program is killed without notice, which
nothing can prevent: then all jobs of the GPU are queued again, and MPS recovers. The test plays the operator and kubelet of
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
from dataclasses import replace
from functools import partial

import pytest

from agent.claims import Claim, allocate
from agent.node import Body, Node, serve
from partita.agent.times import AgentTimes
from partita.pods.termination import PRE_STOP_SLEEP, TERMINATE_BEFORE_KILL
from support.api import condition
from support.polling import holds_within, until

AT_ONCE = 6
"""Jobs that are ended at the same time."""
BATCH = 50
"""Terminations between two programs that are killed without notice."""
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


class Ends:
    """What became of the programs that were ended."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.seconds: list[float] = []
        """From the mark to the last termination before SIGTERM."""


async def exited(program: subprocess.Popen[str], seconds: float) -> bool:
    """Wait for a program's end, for so long."""
    return await asyncio.to_thread(holds_within, lambda: program.poll() is not None, seconds)


async def end(
    job: Claim, programs: dict[subprocess.Popen[str], tuple[str, ...]], ends: Ends
) -> None:
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


def has_started_or_ended(program: subprocess.Popen[str], node: Node) -> bool:
    return program.poll() is not None or program.pid in node.gpus.pids()


async def start(job: Claim, steps: tuple[str, ...], ends: Ends) -> subprocess.Popen[str]:
    """Start a program; again if MPS refuses it, as it does while it terminates another client."""
    while True:
        program = job.run(*steps, "alloc:10", "forever")
        await until(partial(has_started_or_ended, program, job.node))
        if program.poll() is None:
            return program
        said = (await asyncio.to_thread(program.communicate))[1]
        assert "MPS server is not ready to accept" in said
        ends.counts["refused at the start"] += 1


async def run_and_end(node: Node, name: str, chance: random.Random, ends: Ends) -> None:
    """Run a job, end it at a random time while it uses the GPU, and release its allocation."""
    job = await allocate(node, name, 300)
    kind = chance.choice(sorted(KINDS))
    ends.counts["jobs"] += 1
    programs = {await start(job, steps, ends): steps for steps in KINDS[kind]}
    await asyncio.sleep(chance.uniform(0.0, 0.3))
    await end(job, programs, ends)
    for program in programs:
        await asyncio.to_thread(program.communicate)
    code = max(program.returncode for program in programs)
    await job.ends("Failed" if code else "Succeeded", code)
    await job.release()


class Neighbours:
    """Jobs that run beside those that are ended."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._jobs: dict[Claim, subprocess.Popen[str]] = {}
        self._numbers = itertools.count()

    async def start(self) -> None:
        for _ in range(2):
            job = await allocate(self._node, f"neighbour-{next(self._numbers)}", 1000)
            self._jobs[job] = job.run("alloc:500", "forever")
        await until(lambda: self.on_gpu == set(self._jobs.values()))

    @property
    def on_gpu(self) -> set[subprocess.Popen[str]]:
        """Their programs that use the GPU."""
        found = self._node.gpus.pids()
        return {program for program in self._jobs.values() if program.pid in found}

    def check(self) -> None:
        assert all(program.poll() is None for program in self._jobs.values())

    async def are_lost(self) -> None:
        """Play operator and kubelet: their GPU is faulted, and they are queued again."""
        for job, program in self._jobs.items():
            program.kill()
            await asyncio.to_thread(program.communicate)
            await job.release()
        self._jobs.clear()


def restarts(body: Body) -> int:
    """How often the agent has restarted MPS."""
    return sum((body["status"]["mps"].get("restarts") or {}).values())


async def kill_unannounced(node: Node, neighbours: Neighbours, number: int) -> tuple[float, float]:
    """Kill a program that uses the GPU, as the out-of-memory killer does.

    Returns
    -------
    tuple
        Seconds until the agent reports it, so that the operator queues the lost jobs again without
        counting a failure, and from their release until the GPU takes jobs again.
    """
    job = await allocate(node, f"killed-{number}", 300)
    program = job.run("alloc:10", "forever")
    await node.until(job.used)  # the agent knows of no program that it never saw
    before = restarts(await node.body())
    began = time.monotonic()
    program.kill()
    await asyncio.to_thread(program.communicate)
    await job.ends("Failed", 137)

    def reported(body: Body) -> bool:
        killed = body["status"]["mps"].get("killedClient") or {}
        return killed.get("job") == job.entry or condition(body, "Faulted")[0] == "True"

    await node.until(reported)
    told = time.monotonic()
    await neighbours.are_lost()
    await job.release()
    released = time.monotonic()
    await node.until(lambda b: restarts(b) > before and condition(b, "Ready")[0] == "True")
    return told - began, time.monotonic() - released


@pytest.mark.timeout(3600)
async def test_terminations_in_flight_cost_no_neighbour_its_work(
    node: Node,
    pytestconfig: pytest.Config,
    record_property: Callable[[str, object], None],
):
    # It recovers as slowly as on a node.
    usual = AgentTimes()
    node.times = replace(
        node.times,
        check_every=usual.check_every,
        fault_restart=usual.fault_restart,
        fault_shown_for=usual.fault_shown_for,
    )
    total = int(pytestconfig.getoption("--terminations"))
    chance = random.Random(total)
    await serve(node)
    node.gpus.mps(kill="documented")  # what NVIDIA has confirmed of a program killed in flight
    numbers, ends, neighbours = itertools.count(), Ends(), Neighbours(node)
    kills: list[tuple[float, float]] = []

    async def work(until_number: int) -> None:
        while ends.counts["jobs"] < until_number:
            await run_and_end(node, f"job-{next(numbers)}", chance, ends)
            neighbours.check()

    for batch in range(0, total, BATCH):
        await neighbours.start()
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(work(min(batch + BATCH, total)))
        neighbours.check()
        kills.append(await kill_unannounced(node, neighbours, len(kills)))
    figures = dict(ends.counts) | {
        "longest termination (s)": round(max(ends.seconds), 2),
        "kills in flight": len(kills),
        "longest until reported (s)": round(max(told for told, _ in kills), 1),
        "longest until ready (s)": round(max(ready for _, ready in kills), 1),
    }
    record_property("terminations", figures)
    print(figures)  # noqa: T201 - the result
    assert ends.counts["jobs"] >= total
    assert ends.counts["SIGTERM in flight"] == ends.counts["SIGKILL in flight"] == 0
