"""When jobs and Pods with claims are expected to start: from decisions to statuses."""

import pytest

from partita.claims.claim_reconciler import ClaimReconciler
from partita.jobs.job_reconciler import JobReconciler
from partita.models import EstimatedStart
from partita.process.reconcilers import Reconcilers
from partita.process.start_estimates import StartEstimates, differs
from partita.scheduling.cycle_result import CycleResult
from partita.scheduling.policy_runner import PolicyRunner
from partita.scheduling.reasons import Reason, WaitingReason
from partita.times import Times
from partita_policies.start_times.futures import Futures
from partita_policies.types import GPU, Job, RunningJob, Snapshot
from support.builders import START, a_state, at, job_body, partition_body, take
from support.claims import claim_body, claiming_pod_body
from support.meanwhile import running
from support.polling import until

NOW = START.timestamp()
UIDS = {"next": "uid-next", "held": "uid-held-gpu"}


class World:
    """A partition whose decisions are reported; job `next` and the claim of Pod `held` wait there."""

    def __init__(self) -> None:
        pod = claiming_pod_body("held"), claim_body("held-gpu", pod="held")
        self.state = a_state(partition_body(policy={"shadow": ["sjf"]}), job_body("next"), *pod)
        self.runner = PolicyRunner(self.state.partitions["shared"].spec.policy)
        self.jobs = JobReconciler(self.state)
        self.claims = ClaimReconciler(self.state, self.jobs.demand)
        self.jobs.reconcile(UIDS["next"], START)
        self.claims.reconcile(UIDS["held"], START)
        both = Reconcilers(self.jobs, self.claims)
        times = Times(estimate_starts=0.0)
        self.estimates = StartEstimates(self.state, both, lambda _: self.runner, times)

    def decide(
        self, time: float, *waiting: str, placed: str = "", duration: float | None = 60.0
    ) -> None:
        jobs = tuple(Job(UIDS[name], name, "team", 100, duration=duration) for name in waiting)
        run = RunningJob("now", 100, started=NOW, duration=duration, namespace="team")
        gpu = GPU("shared-0", "node", 100, 8, running=(run,))
        left = tuple(job for job in jobs if job.name != placed)
        self.jobs.demand.waiting["shared"].update({job.id: job for job in left})
        snapshot = Snapshot("shared", NOW + time, left, (gpu,))
        started = [(job, ("shared-0",)) for job in jobs if job.name == placed]
        found = CycleResult(left=snapshot, allocated={gpu.id: gpu}, placed=started, order=[*jobs])
        self.estimates.decided(found)

    def said(self, name: str) -> EstimatedStart | None:
        if name == "held":
            return self.claims.record(UIDS[name]).expected
        found = self.jobs.status(UIDS[name], at(0))
        return found[0].estimated_start if found else None


async def test_what_waits_has_an_interval_or_a_reason_until_it_starts() -> None:
    world = World()
    world.decide(5.0, "next", "held", duration=None)
    async with running(world.estimates.run()):
        await until(lambda: world.said("next") is not None)
        assert "neither an expectedDuration nor" in world.said("next").reason
        assert world.said("held").reason == world.said("next").reason
        world.decide(10.0, "next", "held")
        await until(lambda: world.said("next").latest is not None)
        await until(lambda: world.runner.shadow_counts["sjf"].waits.jobs == 2)
    assert (said := world.said("next")).as_of == at(10)
    assert at(30) < said.earliest < at(60) < said.latest < at(100) < world.said("held").latest
    world.decide(60.0, "next", placed="next")
    assert (world.said("next"), world.said("held")) == (None, None)
    assert [accuracy.held for _, accuracy in world.estimates.accuracy()] == [1]
    async with running(world.estimates.run()):
        world.decide(30.0, "next")  # it was preempted, and the clock was set back
        await until(lambda: world.said("next") is not None)
    assert world.said("next").latest > at(30)


async def test_what_waits_for_something_else_has_no_estimate() -> None:
    world, uid, old = World(), UIDS["next"], EstimatedStart(as_of=START)
    why = WaitingReason(Reason.QUOTA_EXCEEDED, "a quota")
    world.jobs.expect(uid, old)  # as an earlier operator
    left = Snapshot("shared", NOW, (), ())
    world.estimates.decided(CycleResult(left=left, why={uid: why}))
    assert world.said("next") is None
    world.decide(10.0, "next", "held")
    world.jobs.expect(uid, old)
    world.jobs.rejections.note(world.state.jobs[uid], why, START)
    world.jobs.reconcile(uid, START)
    async with running(world.estimates.run()):
        await until(lambda: world.said("held") is not None)
    assert world.said("next") is None


async def test_the_estimates_under_a_policy_that_was_replaced_meanwhile_are_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, draw = World(), Futures.draw

    def replaced(futures: Futures) -> bool:
        take(world.state, partition_body(policy={"name": "sjf"}))
        return draw(futures)

    world.decide(10.0, "next")
    monkeypatch.setattr(Futures, "draw", replaced)
    async with running(world.estimates.run()):
        await until(lambda: world.state.partitions["shared"].spec.policy.name == "sjf")
        await until(lambda: world.estimates._partitions["shared"].turns[""].over)
        monkeypatch.setattr(Futures, "draw", draw)
        world.decide(20.0, "next")
        await until(lambda: world.said("next") is not None)
    assert world.said("next").as_of == at(20)  # that of at(10) would not have been replaced


def test_an_estimate_is_written_again_when_it_has_moved_noticeably() -> None:
    old = EstimatedStart(earliest=at(50), latest=at(100), as_of=START)
    moved = [old.model_copy(update={"latest": at(time)}) for time in (100, 115, 130, 75)]
    assert [differs(old, new) for new in moved] == [False, False, True, True]
    least = old.model_copy(update={"latest": None})
    moved = [least.model_copy(update={"earliest": at(time)}) for time in (75, 110)]
    assert [differs(old, least), *(differs(least, new) for new in moved)] == [True, False, True]
