"""The loop has thousands of jobs to look at, and others to let have their turn."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from itertools import chain, repeat
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from structlog.testing import capture_logs

from partita.jobs.lifecycle import Plan
from partita.kube.client import PODS, Kind
from partita.models.quantities import format_time
from partita.process.loop import Loop
from partita.scheduling.cycle import Cycle
from partita.scheduling.cycle_result import CycleResult
from partita.scheduling.policy_runner import PolicyRunner
from partita.scheduling.waiting_jobs import BEHIND_OWN_JOBS, WaitingJobs
from partita.store.state import State
from partita.times import Times
from support.builders import (
    GIB,
    START,
    a_state,
    gpus_up,
    job_body,
    partition_body,
    pod_body,
    pod_status,
    profile_body,
    server_body,
    take,
)
from support.fake_kube import FakeKube
from support.meanwhile import running
from support.polling import TIMEOUT, until

JOBS = 20


class World:
    """Jobs that nobody has looked at, a partition without GPUs, and the loop.

    Attributes
    ----------
    looked
        Who was looked at, in order.
    meanwhile
        Called once, within the first look.
    """

    def __init__(self) -> None:
        bodies = [partition_body(), *(job_body(f"job-{n}") for n in range(JOBS))]
        self.state: State = a_state(*bodies)
        self.kube = FakeKube(*bodies)
        self.kube.times = Times(turn=0.0, pods_started=2 * TIMEOUT)
        self.state.now = lambda: START
        self.loop = Loop(self.kube, self.state, Mock())  # type: ignore[arg-type]
        self.looked: list[str] = []
        self.meanwhile: Callable[[], None] = lambda: None
        self._look = self.loop.jobs.reconcile
        self.loop.jobs.reconcile = self._note  # type: ignore[method-assign]

    def _note(self, uid: str, now: datetime) -> Plan | None:
        if not self.looked:
            self.meanwhile()
        self.looked.append(uid)
        return self._look(uid, now)

    def has_a_gpu(self) -> None:
        """Give the partition one that is ready."""
        server = server_body()
        self.kube.objects[server["metadata"]["name"]] = server
        for body in gpus_up(server):
            take(self.state, body)


async def test_jobs_and_cycles_have_turns_beside_a_flood(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after a start, when thousands are looked at and told."""
    world, told = World(), list[str]()

    async def cycle(_: Cycle) -> CycleResult:
        told.append("cycle")
        return CycleResult()

    monkeypatch.setattr(Cycle, "run", cycle)
    monkeypatch.setattr(PolicyRunner, "build", AsyncMock())  # its thread may take its time
    monkeypatch.setattr(world.loop.jobs, "status", lambda uid, _: told.append(uid))
    async with running(world.loop.run()), asyncio.timeout(TIMEOUT):
        while not world.looked:
            await asyncio.sleep(0)
        assert len(world.looked) == 1, "others have their turn after each"
        take(world.state, job_body("single", namespace="team-b"))
        await until(lambda: {"uid-single", "cycle"} <= {*told})
    turns = [order.index("uid-single") for order in (world.looked, told)]
    assert max(*turns, told.index("cycle")) < JOBS / 2


async def test_what_fails_in_a_turn_is_logged_and_the_loop_goes_on() -> None:
    world = World()
    world.kube.times = Times(turn=0.0, retry_after=0.001)
    renew = Mock(side_effect=chain([ValueError("a bug")] * 2, repeat(())))
    world.loop.jobs.demand.renew = renew  # type: ignore[method-assign]
    with capture_logs() as logs:
        async with running(world.loop.run()):
            await until(lambda: len(world.looked) == JOBS)
    failed = [entry for entry in logs if entry["event"] == "work failed"]
    assert [entry["again_in"] for entry in failed] == [0.001, 0.002]


async def test_a_newcomer_does_not_wait_until_the_pods_of_others_have_started() -> None:
    world, patch = World(), FakeKube.patch
    world.has_a_gpu()

    async def hangs(kind: Kind, *what: Any, **how: Any) -> dict[str, Any]:
        if kind is PODS:
            take(world.state, job_body("single", namespace="team-b", gpuMemory="1Gi"))
            await asyncio.Event().wait()
        return await patch(world.kube, kind, *what, **how)

    world.kube.patch = hangs  # type: ignore[method-assign]
    async with running(world.loop.run()):
        await until(lambda: "single-1" in world.kube.created)


async def test_who_moves_up_among_those_considered_is_considered_at_once() -> None:
    world = World()
    world.loop.jobs.demand.waiting["shared"] = WaitingJobs(1)
    world.has_a_gpu()
    async with running(world.loop.run()):
        await until(lambda: len(world.kube.created) == 4)
        await until(lambda: world.loop.jobs.records["uid-job-9"].why is BEHIND_OWN_JOBS)


async def test_a_gpu_that_comes_while_jobs_are_looked_at_counts_for_those_before() -> None:
    world = World()
    world.meanwhile = lambda: take(world.state, server_body(memory="40Gi", conditions={}))
    async with running(world.loop.run()):
        await until(lambda: len(world.looked) > len({*world.looked}))
    assert world.loop.jobs.demand.largest["shared"].memory > 30 * GIB


async def test_a_cycle_knows_who_was_passed_over_before_and_follows_a_change_of_policy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    take(world.state, job_body("job-0", status={"phase": "Queued", "bypasses": 7}))
    seen: list[tuple[str, dict[str, int]]] = []

    async def cycle(self: Cycle) -> CycleResult:
        seen.append((self.memory.runner.spec.name, self.memory.aging.bypasses))
        return CycleResult()

    monkeypatch.setattr(Cycle, "run", cycle)
    async with running(world.loop.run()):
        await until(lambda: seen)
        assert seen[0] == ("fifo", {"uid-job-0": 7})
        changed = partition_body(metadata={"generation": 2}, policy={"name": "sjf"})
        take(world.state, changed)
        await until(lambda: seen[-1] == ("sjf", {"uid-job-0": 7}))


async def test_a_policy_that_cannot_be_built_is_retried_without_cycles_while_none_waits() -> None:
    state, cycles = a_state(partition_body(policy={"name": "magic"})), Mock(return_value={})
    kube, statuses = FakeKube(), state.queues.partition_statuses
    kube.times = Times(build_policy_again=0.001)
    loop = Loop(kube, state, Mock(), past_shares=cycles)  # type: ignore[arg-type]
    state.queues.partitions.add("shared")
    async with running(loop.run()):
        for _ in range(4):
            await until(statuses.take)
    assert cycles.call_count == 1


async def test_nothing_is_kept_of_a_partition_that_is_gone() -> None:
    world = World()
    world.has_a_gpu()
    state, jobs = world.state, world.loop.jobs
    async with running(world.loop.run()):
        await until(lambda: world.loop.runner("shared") is not None and jobs.demand.largest)
        for body in (*(job_body(f"job-{n}") for n in range(JOBS)), server_body(), partition_body()):
            take(state, body, deleted=True)
        await until(lambda: not (world.loop.runner("shared") or "shared" in jobs.demand.waiting))
        await until(lambda: not (jobs.demand.largest or jobs.demand.releases or state.scarce_nodes))


async def test_a_run_that_ended_has_none_of_its_applications_queue_looked_at() -> None:
    world = World()
    for n in range(JOBS):
        take(world.state, job_body(f"job-{n}", application="resnet"))
    world.kube.answers.clear()  # a status that has been written has its job looked at again
    waiting = world.loop.jobs.demand.waiting["shared"]
    async with running(world.loop.run()):
        await until(lambda: len(waiting) >= JOBS and world.state.queues.jobs.due_in() is None)
        looks = len(world.looked)
        take(world.state, profile_body())
        await until(lambda: all(job.profile is not None for job in waiting.values()))
        assert not world.state.queues.jobs.take()
    assert len(world.looked) == looks


def looping(kube: FakeKube, state: State) -> AbstractAsyncContextManager[None]:
    """Have a loop run on this state."""
    state.now = lambda: START
    return running(Loop(kube, state, Mock()).run())  # type: ignore[arg-type]


def finished(name: str = "done", **spec: Any) -> dict[str, Any]:
    """A job that ended an hour ago."""
    ended = format_time(START - timedelta(hours=1))
    status = {"phase": "Succeeded", "observedGeneration": 1, "completionTime": ended}
    return job_body(name, status=status, **spec)


async def test_a_finished_job_whose_pod_turns_up_late_is_read_whole_and_the_pod_ended() -> None:
    body, pod = finished(), pod_body("done", 2, status=pod_status("Running", started=START))
    state, kube = State(archives=True), FakeKube(body, pod)
    take(state, body)
    async with looping(kube, state):
        take(state, pod)
        await until(lambda: ("delete", "done-2") in [write[:2] for write in kube.writes])


@pytest.mark.parametrize(("ttl", "deleted"), [(3599, 8), (3600, 8), (3601, 0)])
async def test_jobs_whose_time_is_over_are_deleted_a_few_at_once(ttl: int, deleted: int) -> None:
    state, kube = State(archives=True), FakeKube()
    for n in range(JOBS):
        take(state, finished(f"done-{n}", ttlSecondsAfterFinished=ttl))
    kube.answers.clear()
    async with looping(kube, state):
        await until(lambda: state.queues.jobs.due_in() != 0.0)
        await until(lambda: len(kube.writes) >= deleted)
    assert kube.writes == [("delete", f"done-{n}", (f"uid-done-{n}", None)) for n in range(deleted)]


async def test_a_job_whose_status_says_everything_becomes_a_record() -> None:
    body = finished()
    body["status"]["observedGeneration"] = 0
    state, kube = State(archives=True), FakeKube(body)
    take(state, body)
    async with looping(kube, state):
        await until(lambda: "uid-done" in state.finished)
    assert state.jobs == {}


async def test_work_that_has_not_begun_ends_with_the_loop_without_a_warning() -> None:
    state, kube = State(archives=True), FakeKube()
    take(state, finished(ttlSecondsAfterFinished=1))
    task = asyncio.create_task(Loop(kube, state, Mock()).run())  # type: ignore[arg-type]
    state.now = lambda: [START, task.cancel()][0]  # type: ignore[assignment,return-value]
    await asyncio.wait({task})
    assert kube.writes == []
