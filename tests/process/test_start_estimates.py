"""When jobs are expected to start: from decisions to statuses."""

from dataclasses import replace
from datetime import timedelta

import pytest

from partita.jobs.job_reconciler import JobReconciler
from partita.models import EstimatedStart
from partita.process import start_estimates as module
from partita.process.start_estimates import StartEstimates, differs
from partita.scheduling.cycle_result import CycleResult
from partita.times import Times
from partita_policies.types import GPU, Job, RunningJob, Snapshot
from support.builders import START, a_state, at, job_body, partition_body, take
from support.meanwhile import running
from support.polling import until

NOW = START.timestamp()
GUARD = GPU("shared-0", "node", 100, 8)


class World:
    """A partition whose decisions are reported, and the jobs that wait there."""

    def __init__(self, *names: str) -> None:
        self.state = a_state(partition_body(), *(job_body(name) for name in names))
        self.jobs = JobReconciler(self.state)
        self.uids = {job.metadata.name: uid for uid, job in self.state.jobs.items()}
        for uid in self.uids.values():
            self.jobs.reconcile(uid, START)
        self.estimates = StartEstimates(self.state, self.jobs, Times(estimate_starts=0.0))

    def decide(
        self, time: float, *waiting: str, placed: str = "", duration: float | None = 60.0
    ) -> None:
        jobs = tuple(Job(self.uids[name], name, "team", 100, duration=duration) for name in waiting)
        run = RunningJob("now", 100, started=NOW, duration=duration, namespace="team")
        snapshot = Snapshot("shared", NOW + time, jobs, (replace(GUARD, running=(run,)),))
        started = [(job, ("shared-0",)) for job in jobs if job.name == placed]
        self.estimates.decided(CycleResult(snapshot=snapshot, placed=started))

    def said(self, name: str) -> EstimatedStart | None:
        found = self.jobs.status(self.uids[name], at(0))
        return found[0].estimated_start if found else None


async def test_a_waiting_job_has_an_interval_until_it_starts_which_is_then_compared() -> None:
    world = World("next", "held")
    world.decide(10.0, "next", "held")
    async with running(world.estimates.run()):
        await until(lambda: world.said("next") is not None)
    said = world.said("next")
    assert (said.as_of, said.probability, said.reason) == (at(10), 0.9, "")
    assert at(30) < said.earliest < at(60) < said.latest < at(100)
    world.decide(60.0, "next", placed="next")
    assert (world.said("next"), world.said("held")) == (None, None)
    assert [(name, accuracy.held) for name, accuracy in world.estimates.accuracy()] == [
        ("shared", 1)
    ]


async def test_a_job_is_told_why_nothing_can_be_said() -> None:
    world = World("next")
    world.decide(10.0, "next", duration=None)
    async with running(world.estimates.run()):
        await until(lambda: world.said("next") is not None)
    assert world.said("next").latest is None
    assert "expectedDuration" in world.said("next").reason


async def test_the_estimates_under_a_policy_that_was_replaced_meanwhile_are_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, compute = World("next"), module.expected_starts

    def replaced(*args: object, **kwargs: object):
        take(world.state, partition_body(policy={"name": "sjf"}))
        return compute(*args, **kwargs)

    world.decide(10.0, "next")
    monkeypatch.setattr(module, "expected_starts", replaced)
    async with running(world.estimates.run()):
        await until(lambda: world.state.partitions["shared"].spec.policy.name == "sjf")
        await until(lambda: world.estimates._partitions["shared"].round.over)
        monkeypatch.setattr(module, "expected_starts", compute)
        world.decide(20.0, "next")
        await until(lambda: world.said("next") is not None)
    assert world.said("next").as_of == at(20)  # that of at(10) would not have been replaced


async def test_a_round_is_followed_by_a_rest_of_19_times_its_cpu_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, clock = World("next"), iter([1.0, 1.25])
    world.decide(10.0, "next")
    monkeypatch.setattr(module, "thread_time", lambda: next(clock))
    kept = world.estimates._partitions["shared"]
    assert module.REST * await world.estimates._round("shared", kept) == 19 * 0.25


@pytest.mark.parametrize(("moved", "written"), [(0, False), (15, False), (30, True), (-25, True)])
def test_an_estimate_is_written_again_when_it_has_moved_noticeably(
    moved: int, *, written: bool
) -> None:
    old = EstimatedStart(earliest=at(50), latest=at(100), as_of=START, probability=0.9)
    new = old.model_copy(update={"latest": old.latest + timedelta(seconds=moved)})
    assert differs(old, new) is written
