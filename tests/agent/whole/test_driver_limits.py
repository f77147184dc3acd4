"""Limits of the driver: what the agent proves, reads back, counts and repairs."""

from __future__ import annotations

from typing import Any

import pytest

from agent.claims import prepare_claim
from agent.limited import LimitedJob, limited_claim, limited_job, probe
from agent.node import Body, Node
from gpu.fake import MIB
from gpu.toolkit import LIMIT, REQUEST
from partita.agent.errors import NVMLError
from partita.agent.limits import driver_limits
from support.api import condition
from support.polling import until


@pytest.fixture(autouse=True)
def new_driver(node: Node) -> None:
    """The node has driver r615 and the kernel's controller dmem."""
    node.gpus.install_driver("615.71.09", cuda=13040)
    node.gpus.mount_cgroups()


async def start(node: Node, enforcement: str = "Auto") -> None:
    await node.create(enforcement=enforcement)
    node.start_agent()
    node.start_mps()


async def test_a_probe_pod_with_its_limit_proves_limits_of_the_driver(node: Node):
    node.gpus.mount_cgroups(dmem=False)
    await start(node)
    before = await node.says("LimitsNotProven")
    assert "enforcement" not in before["status"]
    await probe(node)
    body = await node.is_ready()
    assert condition(body, "DriverLimits") == ("True", "Proven")
    assert body["status"]["enforcement"] == "Driver"
    assert body["status"]["capabilities"] == {"memoryBackend": "misc", "limitHook": "Applied"}


async def proven(node: Node, enforcement: str = "Auto") -> None:
    await start(node, enforcement)
    await probe(node)
    await node.is_ready()


def used(job: LimitedJob, body: Body) -> Body:
    return job.job.used(body)


async def test_the_drivers_count_is_what_a_job_uses_and_its_limit_what_it_may(node: Node):
    await proven(node)
    job = await limited_job(node, "job", 700, 2000)
    programs = [job.run("alloc:700", "forever"), job.run("alloc:300", "forever")]
    body = await node.until(lambda b: used(job, b).get("memory") == f"{700 + 300 + 2 * 300}Mi")
    assert "limitMismatch" not in used(job, body)
    assert condition(body, "DriverLimits")[0] == "True"
    assert all(program.poll() is None for program in programs)
    assert await job.job.events() == []


async def test_a_container_without_its_limit_is_reported_and_watched(node: Node):
    await proven(node)
    job = await limited_job(node, "job", 1000, OTHER="no limits")
    body = await node.says("LimitMismatch", "DriverLimits")
    program = job.run("alloc:100", "forever", NVIDIA_VISIBLE_DEVICES=node.uuid)
    body = await node.until(lambda b: "limitMismatch" in used(job, b))
    assert used(job, body)["limitMismatch"] == {"expected": "1000Mi"}
    events = await until(job.job.events)
    assert [e["reason"] for e in events] == ["WrongMemoryLimit"]
    assert "no limit" in events[0]["message"]
    assert program.poll() is None
    greedy = job.run("alloc:3000", "forever")
    await until(lambda: greedy.poll() is not None)

    async def told() -> bool:
        return "AboveAllocation" in [e["reason"] for e in await job.job.events()]

    await until(told)


async def test_where_a_limit_is_required_one_that_is_wrong_is_reported_and_proven_again(node: Node):
    await proven(node, "Driver")
    job = await limited_job(node, "job", 1000, **{REQUEST: "1000", LIMIT: "4000"})
    job.run("alloc:100", "forever")
    body = await node.says("LimitsNotProven")
    assert "enforcement" not in body["status"]
    body = await node.until(lambda b: "limitMismatch" in used(job, b))
    wrong = {"expected": "1000Mi", "found": "4000Mi"}
    assert used(job, body)["limitMismatch"] == wrong
    await job.ends()
    node.gpus.install_toolkit("missing")
    await probe(node)
    body = await node.says("HookMissing")
    assert condition(body, "DriverLimits") == ("False", "HookMissing")


async def test_an_agent_that_restarts_beside_jobs_keeps_what_was_proven(node: Node):
    await proven(node)
    job = await limited_job(node, "job", 1000)
    job.run("alloc:100", "forever")
    await node.until(lambda b: used(job, b))
    await node.kill_agent()
    node.start_agent()
    await until(lambda: node.agent is not None and node.agent.health.conditions().ready)
    body = await node.body()
    assert body["status"]["capabilities"]["limitHook"] == "Applied"
    assert body["status"]["enforcement"] == "Driver"


def hard_limit(job: LimitedJob) -> str:
    return (job.container.cgroup / "dmem.max").read_text().split()[1]


async def test_a_limit_that_cannot_be_set_keeps_no_other_from_being_set(
    node: Node, monkeypatch: pytest.MonkeyPatch
):
    await proven(node)
    claims = [
        await limited_claim(await prepare_claim(node, name, 1000)) for name in ("first", "second")
    ]
    programs = [claim.run("alloc:100", "forever") for claim in claims]
    await node.until(lambda b: all(used(claim, b) for claim in claims))
    before, working = [int(hard_limit(claim)) for claim in claims], driver_limits.set_memory_limits
    failing: list[Any] = []

    def failing_for_the_first(device: Any, cgroup: Any, *limits: int) -> None:
        failing[:] = failing or [cgroup]
        if cgroup in failing:
            raise NVMLError("In use by another client")
        working(device, cgroup, *limits)

    def grown() -> list[int]:
        now = [int(hard_limit(claim)) for claim in claims]
        return sorted(new - old for new, old in zip(now, before, strict=True))

    monkeypatch.setattr(driver_limits, "set_memory_limits", failing_for_the_first)
    larger = {claim.job.uid: {"memory": "2000Mi"} for claim in claims}
    patch = {"status": {"allocations": larger}}
    (await node.api.patch(f"{node.path}/status", patch)).ok()
    await node.until(lambda b: [bool(used(c, b).get("limitMismatch")) for c in claims].count(True))
    await until(lambda: grown() == [0, 1000 * MIB])
    assert all(program.poll() is None for program in programs)
