"""What is written to the GPUServer, and when."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest

from partita.agent.gpu_report import GPUReport, JobReport
from partita.agent.health import HealthProblem, ServerConditions
from partita.agent.reporter import Reporter, status_patch
from partita.agent.times import AgentTimes
from partita.kube.errors import UnavailableError
from partita.models import Condition
from partita.models.gpu_server import GPUServerStatus, LimitMismatch
from support.patches import merged

MIB = 1 << 20
GIB = 1 << 30
TIMES = AgentTimes()
DECISIVE_EVERY = TIMES.decisive_every
SHORTEST, LONGEST = TIMES.numbers_every
NOW = datetime(2026, 1, 2, tzinfo=UTC)
READY = ServerConditions(ready=True, reason="AgentReporting", message="", fault=None)
LOST = ServerConditions(
    ready=False,
    reason="MPSFault",
    message="lost",
    fault=HealthProblem("MPSFault", "lost", faulted=True),
)


def a_job(**more: Any) -> JobReport:
    facts = {"memory": 100 * MIB, "peak": 200 * MIB, "first_use": 12.0, "limit": GIB}
    return JobReport(**{**facts, **more})


def report(**more: Any) -> GPUReport:
    facts: dict[str, Any] = {
        "facts": {"node": "a", "uuid": "GPU-1", "memory": "40960Mi", "smCount": 108},
        "conditions": READY,
        "total": 40 * GIB,
        "memory": GIB,
        "utilization": 50,
        "jobs": {"u1": a_job()},
        "mps": {"state": "Ready", "clients": 1},
    }
    return GPUReport(**{**facts, **more})


class Kube:
    """An API server that merges patches."""

    def __init__(self) -> None:
        self.status: dict[str, Any] = {}
        self.patches: list[dict[str, Any]] = []
        self.down = False

    async def patch(self, _kind, _name, patch, *, subresource):
        if self.down:
            raise UnavailableError("patch", 503, "no")
        assert subresource == "status"
        self.patches.append(patch["status"])
        self.status = merged(self.status, patch["status"])
        return self.body()

    def body(self) -> dict[str, Any]:
        return {"metadata": {"resourceVersion": str(len(self.patches))}, "status": self.status}


@pytest.fixture
def kube() -> Kube:
    return Kube()


@pytest.fixture
def reporter(kube: Kube) -> Reporter:
    return Reporter(kube, "gpus-0", TIMES)  # type: ignore[arg-type]


def test_a_first_report_says_everything_and_is_a_valid_status():
    patch = status_patch(report(), {}, NOW)
    assert patch["uuid"] == "GPU-1"
    assert patch["usage"]["jobs"]["u1"] == {
        "memory": "100Mi",
        "peakMemory": "200Mi",
        "firstUse": "1970-01-01T00:00:12.000000Z",
    }
    status = GPUServerStatus.model_validate(patch)
    assert status.holds("Ready")
    assert not status.holds("Faulted")
    assert status.usage is not None
    assert status.usage.jobs["u1"].peak_memory == 200 * MIB


def test_what_stands_there_already_is_not_written_again():
    known = status_patch(report(), {}, NOW)
    assert status_patch(report(), known, NOW) == {}


def test_conditions_of_others_stay_and_times_change_with_the_status_alone():
    known = status_patch(report(), {}, NOW)
    known["conditions"].append({"type": "Other", "status": "True"})
    later = datetime(2026, 1, 3, tzinfo=UTC)
    conditions = status_patch(report(conditions=LOST), known, later)["conditions"]
    by_type = {c["type"]: c for c in conditions}
    assert set(by_type) == {"Ready", "Faulted", "Other"}
    assert by_type["Ready"]["reason"] == by_type["Faulted"]["reason"] == "MPSFault"
    assert by_type["Ready"]["lastTransitionTime"].startswith("2026-01-03")
    other = replace(LOST, reason="NVMLHangs")
    again = status_patch(report(conditions=other), {"conditions": conditions}, NOW)["conditions"]
    assert {c["type"]: c for c in again}["Ready"]["lastTransitionTime"].startswith("2026-01-03")


def test_what_a_gpu_supports_is_shown_and_a_field_that_is_gone_is_unset():
    driver = Condition(type="DriverLimits", status="False", reason="CgroupV1", message="use v2")
    facts = {
        "enforcement": "Driver",
        "capabilities": {"memoryBackend": "misc", "limitHook": "Applied"},
    }
    status: dict[str, Any] = {}
    status = merged(status, status_patch(report(facts=facts), {}, NOW))
    facts = {"enforcement": None, "capabilities": {"memoryBackend": "none"}}
    patch = status_patch(report(facts=facts, support=(driver,)), status, NOW)
    status = merged(status, patch)
    assert "enforcement" not in status
    assert status["capabilities"] == {"memoryBackend": "none"}
    assert [c["reason"] for c in status["conditions"] if c["type"] == "DriverLimits"] == [
        "CgroupV1"
    ]
    assert status_patch(report(facts=facts, support=(driver,)), status, NOW) == {}


async def test_a_wrong_limit_is_written_soon_and_taken_back(reporter: Reporter, kube: Kube):
    await reporter.report(report(), 0.0)
    job = a_job(mismatch=LimitMismatch(expected=GIB, found=None))
    assert await reporter.report(report(jobs={"u1": job}), DECISIVE_EVERY)
    assert kube.status["usage"]["jobs"]["u1"]["limitMismatch"] == {"expected": "1Gi"}
    assert await reporter.report(report(), 2 * DECISIVE_EVERY)
    assert "limitMismatch" not in kube.status["usage"]["jobs"]["u1"]


async def test_conditions_are_written_at_once(reporter: Reporter, kube: Kube):
    assert await reporter.report(report(), 0.0)
    assert not await reporter.report(report(), 0.1)
    assert await reporter.report(report(conditions=LOST), 0.2)
    assert "conditions" in kube.patches[-1]


async def test_numbers_are_written_seldom_and_only_when_they_moved(reporter: Reporter, kube: Kube):
    await reporter.report(report(), 0.0)
    assert not await reporter.report(report(utilization=90), SHORTEST - 1)
    assert not await reporter.report(report(utilization=53), SHORTEST)
    assert await reporter.report(report(utilization=90), SHORTEST)
    assert not await reporter.report(report(utilization=90, memory=GIB + MIB), 100.0)
    assert await reporter.report(report(utilization=90, memory=2 * GIB), 100.0)
    assert len(kube.patches) == 3


async def writes(reporter: Reporter, seconds: range, **more: Any) -> list[int]:
    """When a GPU whose utilization changes all the time is written about."""
    return [
        at
        for at in seconds
        if await reporter.report(report(utilization=90 * (at % 2), **more), float(at))
    ]


async def test_numbers_that_always_change_are_written_once_a_minute(reporter: Reporter):
    await writes(reporter, range(1000))
    found = await writes(reporter, range(1000, 4601))
    assert len(found) <= 3600 / LONGEST + 1


async def test_numbers_are_written_more_often_when_a_job_has_begun(reporter: Reporter):
    await writes(reporter, range(1000))
    jobs = {"u1": a_job(), "u2": a_job()}
    found = await writes(reporter, range(1000, 1400), jobs=jobs)
    assert 4 <= len([at for at in found if at <= 1060 + LONGEST]) <= 6
    assert all(at + SHORTEST <= later for at, later in pairwise(found))
    assert found[-1] - found[-2] >= LONGEST


async def test_a_new_job_is_written_and_a_growing_peak_only_in_steps(
    reporter: Reporter, kube: Kube
):
    await reporter.report(report(jobs={}), 0.0)
    assert await reporter.report(report(), 100.0)
    for second in range(101, 200):
        higher = a_job(peak=(200 + second) * MIB)
        assert not await reporter.report(report(jobs={"u1": higher}), float(second))
    assert await reporter.report(report(jobs={"u1": a_job(peak=900 * MIB)}), 201.0)
    assert kube.status["usage"]["jobs"]["u1"]["peakMemory"] == "900Mi"


async def test_the_peak_of_a_job_that_left_the_gpu_is_written_soon(reporter: Reporter, kube: Kube):
    await reporter.report(report(), 0.0)
    left = report(jobs={"u1": a_job(memory=0, peak=201 * MIB)})
    assert not await reporter.report(left, DECISIVE_EVERY / 2)
    assert await reporter.report(left, DECISIVE_EVERY)
    assert kube.status["usage"]["jobs"]["u1"]["peakMemory"] == "201Mi"


async def test_a_peak_is_written_before_the_end_of_a_pod(reporter: Reporter, kube: Kube):
    await reporter.report(report(), 0.0)
    higher = report(jobs={"u1": a_job(peak=201 * MIB)})
    assert not await reporter.report(higher, 0.1)
    assert await reporter.report(higher, 0.2, ending=True)
    assert kube.status["usage"]["jobs"]["u1"]["peakMemory"] == "201Mi"
    assert not await reporter.report(higher, 0.3, ending=True)


async def test_the_same_peak_of_the_next_attempt_is_written_before_its_end(reporter: Reporter):
    body = {"metadata": {"resourceVersion": "9"}, "status": status_patch(report(), {}, NOW)}
    reporter.set_known(body)
    assert not await reporter.report(report(), 0.0, ending=True)
    again = report(jobs={"u1": a_job(first_use=99.0)})
    assert await reporter.report(again, 0.1, ending=True)


async def test_memory_above_the_allocation_is_written_soon_and_once(reporter: Reporter, kube: Kube):
    await reporter.report(report(), 0.0)
    for second, mebi in enumerate((1024, 1025, 1026, 1027), 1):
        await reporter.report(report(jobs={"u1": a_job(peak=mebi * MIB)}), float(second))
    assert len(kube.patches) == 2
    assert kube.status["usage"]["jobs"]["u1"]["peakMemory"] == "1025Mi"


async def test_a_job_that_has_left_the_ledger_is_taken_out_in_time(reporter: Reporter, kube: Kube):
    await reporter.report(report(), 0.0)
    assert not await reporter.report(report(jobs={}), DECISIVE_EVERY)
    assert await reporter.report(report(jobs={}), LONGEST)
    assert kube.status["usage"]["jobs"] == {}


async def test_a_fact_about_a_job_that_has_left_the_ledger_is_taken_out_soon(
    reporter: Reporter, kube: Kube
):
    await reporter.report(report(jobs={"u1": a_job(idle_since=60.0)}), 0.0)
    assert await reporter.report(report(jobs={}), DECISIVE_EVERY)
    assert kube.status["usage"]["jobs"] == {}


async def test_mps_states_are_written_at_once_and_client_counts_are_not(
    reporter: Reporter, kube: Kube
):
    await reporter.report(report(), 0.0)
    assert not await reporter.report(report(mps={"state": "Ready", "clients": 2}), 0.1)
    assert await reporter.report(report(mps={"state": "Faulted", "clients": 0}), 0.2)
    assert await reporter.report(report(mps={"state": "Faulted", "clients": 2}), 100.0)


async def test_the_end_of_all_use_is_worth_a_write(reporter: Reporter, kube: Kube):
    await reporter.report(report(utilization=2), 0.0)
    assert await reporter.report(report(utilization=0), SHORTEST)


async def test_what_could_not_be_written_is_tried_again(reporter: Reporter, kube: Kube):
    kube.down = True
    assert not await reporter.report(report(), 0.0)
    kube.down = False
    assert await reporter.report(report(), 0.5)


async def test_the_status_of_the_api_server_counts(reporter: Reporter, kube: Kube):
    await reporter.report(report(), 0.0)
    older = kube.body() | {"status": {}}
    await reporter.report(report(utilization=0), LONGEST)
    reporter.set_known(older)  # the watch is behind the answers to writes
    assert not await reporter.report(report(utilization=0), 2 * LONGEST)
    reporter.set_known(kube.body() | {"status": {}})  # somebody has cleared it
    assert await reporter.report(report(), 2 * LONGEST)
