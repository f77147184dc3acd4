"""When jobs are expected to start: from decisions to statuses."""

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
        snapshot = Snapshot(
            "shared", NOW + time, jobs, (GPU("shared-0", "node", 100, 8, running=(run,)),)
        )
        started = [(job, ("shared-0",)) for job in jobs if job.name == placed]
        self.estimates.decided(CycleResult(snapshot=snapshot, placed=started))

    def said(self, name: str) -> EstimatedStart | None:
        found = self.jobs.status(self.uids[name], at(0))
        return found[0].estimated_start if found else None


async def test_a_waiting_job_has_an_interval_or_a_reason_until_it_starts() -> None:
    world = World("next", "held")
    world.decide(5.0, "next", "held", duration=None)
    async with running(world.estimates.run()):
        await until(lambda: world.said("next") is not None)
        assert "neither an expectedDuration nor" in world.said("next").reason
        world.decide(10.0, "next", "held")
        await until(lambda: world.said("next").latest is not None)
    assert (said := world.said("next")).as_of == at(10)
    assert at(30) < said.earliest < at(60) < said.latest < at(100)
    world.decide(60.0, "next", placed="next")
    assert (world.said("next"), world.said("held")) == (None, None)
    assert [accuracy.held for _, accuracy in world.estimates.accuracy()] == [1]


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


def test_an_estimate_is_written_again_when_it_has_moved_noticeably() -> None:
    old = EstimatedStart(earliest=at(50), latest=at(100), as_of=START)
    moved = [old.model_copy(update={"latest": at(time)}) for time in (100, 115, 130, 75)]
    assert [differs(old, new) for new in moved] == [False, False, True, True]
