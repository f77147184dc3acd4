"""Killed between any two writes and started again, the operator comes to the same end.

The proxy lets one write through at a time. It kills the operator after so many of them took
effect, before the answer; or before so many-th is forwarded, when those before it took effect. A
new operator is started and killed in the same way, until everything is done.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from support.clusters import ApiServer
from support.crashes import kill_while
from support.faults import When
from support.job import Job
from support.operator_process import Forge
from support.polling import TIMEOUT
from support.proxy import FaultProxy
from support.requests import Request
from support.system import System

LONG = {"duration": "20h"}


def counts(request: Request) -> bool:
    """Tell the writes that make a difference: a lease, an event or a summary makes none."""
    kinds = {"gpuservers", "pods", "resourceclaims", "sharedgpujobs"}
    return request.is_write and request.resource in kinds


class Scenario:
    """Some jobs to which everything happens."""

    def __init__(self, system: System) -> None:
        self._system = system
        self.jobs: dict[str, Job] = {}

    async def run(self) -> None:
        """Submit the jobs, change what is to change, and wait for the end of all of it."""
        system = self._system
        shared = await system.partition(gpus=2, name="shared", drainTimeout="60s")
        wide = await system.partition(gpus=2, name="wide", sharing={"mode": "Exclusive"})
        async with asyncio.TaskGroup() as group:
            group.create_task(self._plain(shared))
            group.create_task(self._hungry(shared))
            group.create_task(self._failing(shared))
            group.create_task(self._suspended(shared))
            group.create_task(self._deleted(shared))
            group.create_task(self._wide(wide))
        await system.scale(shared, 1)
        await self._until(lambda: len(system.servers(shared)) == 1)
        last = await self._job("last", shared, gpuMemory="30Gi")
        await self._until(lambda: last.status.get("phase") == "Succeeded")
        await self._until(lambda: not system.history.left_over())

    async def _job(self, name: str, partition: str, **spec: object) -> Job:
        job = self.jobs[name] = await self._system.job(name, partition, **spec)
        return job

    async def _until(self, holds: object) -> None:
        # Operators start again and again meanwhile, each of which takes long on a busy machine.
        await self._system.history.until(
            holds, seconds=3 * TIMEOUT, what=self._system.history.left_over
        )

    async def _reaches(self, job: Job, *phases: str) -> None:
        await self._until(lambda: job.status.get("phase") in phases)

    async def _plain(self, partition: str) -> None:
        job = await self._job("plain", partition, gpuMemory="8Gi")
        await self._reaches(job, "Succeeded")

    async def _hungry(self, partition: str) -> None:
        job = await self._job("hungry", partition, gpuMemory="4Gi", sim={"memory": "5Gi"})
        await self._reaches(job, "Succeeded")

    async def _failing(self, partition: str) -> None:
        job = await self._job(
            "failing", partition, gpuMemory="4Gi", retry={"limit": 1}, sim={"exit_code": "1"}
        )
        await self._reaches(job, "Failed")

    async def _suspended(self, partition: str) -> None:
        job = await self._job("suspended", partition, gpuMemory="8Gi", sim=LONG)
        await self._reaches(job, "Running")
        (await job.change(suspend=True)).ok()
        await self._reaches(job, "Suspended")
        template = job.body["spec"]["template"]
        template["metadata"]["annotations"] = {"sim.partita.dev/duration": "10s"}
        (await job.change(suspend=False, template=template)).ok()
        await self._reaches(job, "Succeeded")

    async def _deleted(self, partition: str) -> None:
        job = await self._job("deleted", partition, gpuMemory="8Gi", sim=LONG)
        await self._reaches(job, "Running")
        await job.delete()
        await self._until(lambda: job.body is None and job.pod() is None)

    async def _wide(self, partition: str) -> None:
        job = await self._job("wide", partition, gpus=2)
        await self._reaches(job, "Succeeded")

    def outcomes(self) -> dict[str, list[str]]:
        """Return how the attempts ended."""
        return {
            name: [attempt.get("outcome", "") for attempt in job.status.get("attempts", [])]
            for name, job in self.jobs.items()
        }


EXPECTED = {
    "plain": ["Succeeded"],
    "hungry": ["OutOfMemory", "Succeeded"],
    "failing": ["Failed", "Failed"],
    "suspended": ["Suspended", "Succeeded"],
    "deleted": [],
    "wide": ["Succeeded"],
    "last": ["Succeeded"],
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("lives", "when"),
    [((1, 14, 3), When.AFTER), ((2, 22), When.BEFORE)],
    ids=lambda value: value.name.lower() if isinstance(value, When) else str(value),
)
async def test_killed_at_every_so_many_writes_it_comes_to_the_same_end(
    system: System,
    api_server: ApiServer,
    forge: Forge,
    tmp_path: Path,
    lives: tuple[int, ...],
    when: When,
) -> None:
    async with FaultProxy(api_server, serial=True) as proxy, system.nodes(4):
        scenario = Scenario(system)
        kills = await kill_while(
            scenario.run(), forge, proxy, tmp_path, counts, lives=lives, when=when
        )
        assert kills >= max(1, 16 // max(lives))
        outcomes = scenario.outcomes()
        statuses = {name: job.status for name, job in scenario.jobs.items()}
        assert outcomes == {name: EXPECTED[name] for name in outcomes}, statuses
