"""Which runs are kept, and under what name, when others write at the same time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import structlog

from agent.entries import job_entry, pod_entry
from partita.agent.times import AgentTimes
from partita.agent.usage.job_usage import TracePoint, UsageTrace
from partita.agent.usage.profile_store import ProfileStore
from partita.agent.usage.run_usage import MeasuredRun
from partita.kube.client import PODS, PROFILES, Kind
from partita.kube.errors import ConflictError, NotFoundError
from partita.models.profile import Environment
from support.polling import until

MIB = 1 << 20
START = 1767312000.0  # 2026-01-02T00:00:00Z
ALLOCATION = job_entry(pod_uid="pod-uid", memory=1000 * MIB, application="resnet")


class Kube:
    """One Pod and some profiles."""

    def __init__(self) -> None:
        self.pod: dict[str, Any] | None = pod()
        self.profiles: list[dict[str, Any]] = []
        self.conflicts = 0

    async def get(self, kind: Kind, name: str, namespace: str) -> dict[str, Any]:
        assert (kind, name, namespace) == (PODS, "train-1", "team-a")
        if self.pod is None:
            raise NotFoundError("get", 404, "no")
        return self.pod

    async def list(self, kind: Kind, *, namespace: str) -> tuple[list[dict[str, Any]], str]:
        assert (kind, namespace) == (PROFILES, "team-a")
        return self.profiles, "1"

    async def create(self, kind: Kind, body: dict[str, Any]) -> None:
        assert kind is PROFILES
        self._meet_others()
        body["metadata"]["resourceVersion"] = "1"
        self.profiles.append(body)

    async def patch(self, kind, name, patch, *, namespace, resource_version):
        assert (kind, namespace) == (PROFILES, "team-a")
        self._meet_others()
        (found,) = [p for p in self.profiles if p["metadata"]["name"] == name]
        assert found["metadata"]["resourceVersion"] == resource_version
        found["spec"] |= patch["spec"]

    def _meet_others(self) -> None:
        if self.conflicts:
            self.conflicts -= 1
            raise ConflictError("write", 409, "somebody wrote")


def pod(phase: str = "Succeeded", code: int = 0, uid: str = "pod-uid") -> dict[str, Any]:
    ended = {
        "exitCode": code,
        "startedAt": "2026-01-02T00:00:00Z",
        "finishedAt": "2026-01-02T00:00:10Z",
    }
    statuses = [{"name": "main", "state": {"terminated": ended}}]
    return {"metadata": {"uid": uid}, "status": {"phase": phase, "containerStatuses": statuses}}


def finished(application: str = "resnet", **entry: Any) -> MeasuredRun:
    trace = UsageTrace()
    for n in range(100):
        trace.add(START + n / 10, TracePoint(500 * MIB, 50.0))
    return MeasuredRun(
        ALLOCATION.model_copy(update={"application": application, **entry}), trace, START + 10
    )


def serving(seconds: float = 900.0) -> MeasuredRun:
    trace = UsageTrace()
    for n in range(100):
        trace.add(START + n * seconds / 99, TracePoint(500 * MIB, 50.0))
    entry = pod_entry(
        "train-1", "serve-gpu", pod_uid="pod-uid", memory=1000 * MIB,
        application="Deployment/serve", lasting=True,
    )  # fmt: skip
    return MeasuredRun(entry, trace, START + seconds)


@pytest.fixture
def kube() -> Kube:
    return Kube()


def store(kube: Kube, since: float = START - 100) -> ProfileStore:
    where = Environment(node="a", product="A100")
    return ProfileStore(kube, where, since, AgentTimes(profile_retry=0.0))  # type: ignore[arg-type]


async def test_a_first_run_makes_the_profile_and_a_second_is_merged(kube: Kube):
    assert await store(kube).keep(finished())
    assert await store(kube).keep(finished())
    (profile,) = kube.profiles
    assert profile["metadata"]["name"] == "resnet"
    (measured,) = profile["spec"]["measurements"]
    assert (measured["runs"], measured["duration"]) == (2, "10s")
    assert profile["spec"]["lastRun"] == "2026-01-02T00:00:10.000000Z"


async def test_a_profile_under_another_name_is_the_one_to_merge_into(kube: Kube):
    kube.profiles.append(
        {
            "metadata": {"name": "written-by-hand", "resourceVersion": "7"},
            "spec": {"application": "resnet", "type": "ML"},
        }
    )
    assert await store(kube).keep(finished())
    (profile,) = kube.profiles
    assert profile["spec"]["type"] == "ML"
    assert len(profile["spec"]["measurements"]) == 1


async def test_of_several_profiles_that_is_merged_into_which_the_operator_reads(kube: Kube):
    assert await store(kube).keep(finished())
    empty = {"metadata": {"name": "a", "resourceVersion": "7"}, "spec": {"application": "resnet"}}
    kube.profiles.insert(0, empty)
    assert await store(kube).keep(finished())
    assert "measurements" not in empty["spec"]
    (measured,) = kube.profiles[1]["spec"]["measurements"]
    assert measured["runs"] == 2


async def test_writes_of_others_are_read_before_the_next_try(kube: Kube):
    kube.conflicts = 2
    assert await store(kube).keep(finished())
    kube.conflicts = 1000
    assert not await store(kube).keep(finished())


@pytest.mark.parametrize(
    "ended",
    [
        pod("Failed", 1),
        pod("Running"),
        pod(uid="of a later Pod"),
        {"metadata": {"uid": "pod-uid"}, "status": {"phase": "Succeeded"}},
        None,
    ],
)
async def test_runs_that_did_not_succeed_or_are_unknown_are_not_kept(kube: Kube, ended):
    kube.pod = ended
    assert not await store(kube).keep(finished())
    assert kube.profiles == []


async def test_a_run_that_was_not_measured_completely_is_not_kept(kube: Kube):
    assert not await store(kube, since=START + 5).keep(finished())
    assert await store(kube, since=START + 0.5).keep(finished())


async def test_use_after_the_end_as_kubernetes_rounds_it_down_counts(kube: Kube):
    trace = UsageTrace()
    for n in range(109):
        trace.add(START + n / 10, TracePoint(500 * MIB, 50.0 if n > 100 else 0.0))
    assert await store(kube).keep(MeasuredRun(ALLOCATION, trace, START + 10.8))
    (measured,) = kube.profiles[0]["spec"]["measurements"]
    assert measured["steps"][-1]["gpuUtilization"] == 50.0


@pytest.mark.parametrize(
    "run",
    [
        finished(application=""),
        finished(stores_usage=False),  # the agent of another of its GPUs does
        MeasuredRun(ALLOCATION, UsageTrace(), START),  # idle
    ],
)
async def test_what_is_no_run_of_an_application_leaves_no_profile(kube: Kube, run: MeasuredRun):
    assert not await store(kube).keep(run)


async def test_a_profile_that_cannot_be_read_is_named_and_left_as_it_is(kube: Kube):
    unreadable = {
        "metadata": {"name": "resnet", "resourceVersion": "7"},
        "spec": {"application": "resnet", "measurements": "none"},
    }
    kube.profiles.append(unreadable)
    queue: asyncio.Queue[MeasuredRun] = asyncio.Queue()
    queue.put_nowait(finished())
    queue.put_nowait(finished("bert"))
    with structlog.testing.capture_logs() as logs:
        work = asyncio.create_task(store(kube).run(queue))
        await until(lambda: len(kube.profiles) >= 2)
        work.cancel()
    (said,) = [entry for entry in logs if entry["event"] == "run not merged"]
    assert "ApplicationProfile resnet cannot be read (spec.measurements" in said["error"]
    assert kube.profiles[0] is unreadable
    assert kube.profiles[1]["spec"]["application"] == "bert"


async def test_a_service_is_kept_however_it_ends_once_it_has_run_long_enough(kube: Kube):
    kube.pod = None
    assert not await store(kube).keep(serving(seconds=500))
    assert await store(kube, since=START + 5).keep(serving())
    (profile,) = kube.profiles
    (measured,) = profile["spec"]["measurements"]
    assert measured["duration"] == "15m"
    assert {step["gpuMemory"] for step in measured["steps"]} == {"500Mi"}
