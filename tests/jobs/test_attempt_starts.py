"""An attempt's Pod is created first, waits for its allocation, and then for its start."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.plans import NOW, around, attempt, ended, gated, last, with_attempts, written
from partita.jobs.lifecycle import Plan, plan_job
from partita.models import Outcome, Phase, SharedGPUJob
from partita.models.quantities import format_time
from partita.store.claim_view import ClaimView
from partita.store.views import PodView
from support.builders import DELETING, a_job, a_pod, an_allocation, pod_status
from support.claims import a_job_claim


class TestPodsThatWait:
    """A Pod is created before it has a GPU, and kept as long as the job wants one."""

    def plan(self, *pods: PodView, number: int = 1, **spec: Any) -> Plan:
        job = spec.pop("job", None) or a_job(**spec)
        return plan_job(
            job, around(waiting_pods=pods, claims={number: a_job_claim(attempt=number)}), NOW
        )

    def test_it_is_no_attempt_and_is_kept_with_its_claim(self):
        made = self.plan(gated())
        assert (made.attempts, made.wants_gpu, made.next_attempt) == ((), True, 1)
        assert (made.delete_pods, made.delete_claims) == ((), ())
        assert self.plan().delete_claims == ()  # its Pod could not be created yet

    @pytest.mark.parametrize(
        "job",
        [
            a_job(suspend=True),
            a_job(metadata=DELETING),
            with_attempts(attempt(1, Outcome.FAILED, endTime=format_time(NOW))),
            with_attempts(attempt(1, Outcome.SUCCEEDED), phase=Phase.SUCCEEDED),
        ],
        ids=["suspended", "deleted", "backing off", "finished"],
    )
    def test_of_a_job_that_wants_no_gpu_it_is_deleted_and_then_its_claim(self, job: SharedGPUJob):
        number = len(job.status.attempts) + 1
        made = self.plan(gated(number), number=number, job=job)
        assert (made.wants_gpu, made.delete_claims) == (False, ())
        assert [pod.attempt for pod in made.delete_pods] == [number]
        assert self.plan(gated(number, **DELETING), number=number, job=job).delete_pods == ()
        deleted = self.plan(number=number, job=job).delete_claims
        assert [claim.attempt for claim in deleted] == [number]

    def test_that_of_a_number_that_was_passed_over_is_deleted(self):
        there = around(waiting_pods=[gated()], first_attempt=2)
        made = plan_job(a_job(), there, NOW)
        assert (made.next_attempt, len(made.delete_pods)) == (2, 1)


class TestStart:
    """An allocated Pod is started with its claim; if that cannot happen, its attempt ends."""

    def plan(self, pod: PodView, *claims: ClaimView, lost: bool = False) -> Plan:
        known = {claim.attempt: claim for claim in claims}
        there = around(pod, allocated=1, claims=known, claim_lost=lost)
        return plan_job(a_job(), there, NOW)

    @pytest.mark.parametrize("pod", [gated(), a_pod(node="")], ids=["gated", "not bound"])
    @pytest.mark.parametrize("allocated", [False, True])
    def test_one_that_is_not_bound_waits_with_or_without_the_allocation(
        self, pod: PodView, *, allocated: bool
    ):
        made = self.plan(pod, a_job_claim(allocated=allocated))
        assert (made.phase, last(made).outcome, made.release) == (Phase.ASSIGNED, None, False)

    @pytest.mark.parametrize("pod", [gated(), a_pod(node="")], ids=["gated", "not bound"])
    @pytest.mark.parametrize("claims", [[], [a_job_claim(metadata=DELETING)]])
    def test_one_that_is_not_bound_ends_if_its_claim_is_deleted(
        self, pod: PodView, claims: list[ClaimView]
    ):
        made = self.plan(pod, *claims, lost=not claims)
        assert last(made).outcome is Outcome.EVICTED
        assert last(made).message == "its claim was deleted"
        written_down = plan_job(written(a_job(), made), around(pod, allocated=1, claims={}), NOW)
        assert written_down.delete_pods == (pod,)

    @pytest.mark.parametrize("pod", [a_pod(), gated(**DELETING)], ids=["bound", "being deleted"])
    def test_another_does_not(self, pod: PodView):
        assert last(self.plan(pod, lost=True)).outcome is None

    @pytest.mark.parametrize(
        ("pod", "allocated", "outcome"),
        [
            (a_pod(), False, Outcome.EVICTED),
            (a_pod(), True, None),
            (a_pod(status=pod_status("Running")), False, None),
        ],
        ids=["cleared", "allocated", "cleared while it runs"],
    )
    def test_one_that_was_bound_while_its_claim_was_cleared_ends(
        self, pod: PodView, *, allocated: bool, outcome: Outcome | None
    ):
        claim = a_job_claim(allocated=allocated)
        assert last(self.plan(pod, claim, lost=not allocated)).outcome is outcome
        made = self.plan(pod, claim)  # as long as it is not read
        assert (last(made).outcome, made.read_missing) == (None, outcome is not None)

    def test_one_that_is_in_more_ledgers_than_it_has_gpus_ends(self):
        there = around(gated(), allocated=1, servers=2)
        assert last(plan_job(with_attempts(attempt()), there, NOW)).outcome is Outcome.EVICTED

    def test_a_claim_is_kept_until_its_pod_and_its_allocation_are_gone(self):
        job = with_attempts(attempt(1, Outcome.SUSPENDED))
        dying = a_pod(status=pod_status("Running"), metadata=DELETING)
        assert plan_job(job, around(dying, allocated=1), NOW).delete_claims == ()
        made = plan_job(job, around(allocated=1), NOW)
        assert (made.release, len(made.delete_claims)) == (True, 1)


class TestCrashes:
    def test_too_many_allocations_or_those_of_two_attempts_are_given_back(self):
        there = around(allocated=2, servers=2)
        mixed = dict(there.allocated) | {"shared-0": an_allocation(attempt=1)}
        wide = with_attempts(attempt(1, Outcome.FAILED), gpus=2)
        for job, context in ((wide, replace(there, allocated=mixed)), (a_job(), there)):
            made = plan_job(job, context, NOW)
            assert (made.read_missing, made.release) == (False, True)

    def test_an_allocated_pod_that_no_watch_has_reported_is_looked_for(self):
        for job in (a_job(), a_job(suspend=True), a_job(metadata=DELETING)):
            made = plan_job(job, around(allocated=1), NOW)
            assert (made.read_missing, made.release, made.attempts) == (True, False, ())

    def test_the_next_attempt_starts_while_the_pod_of_the_last_is_still_there(self):
        job = with_attempts(attempt(1, Outcome.FAILED))
        pods = a_pod(status=ended()), gated(2)
        made = plan_job(job, around(*pods, allocated=2), NOW)
        assert (last(made).number, last(made).outcome) == (2, None)


PODS = [
    gated(),
    gated(2),
    gated(2, **DELETING),
    a_pod(node=""),
    a_pod(status=pod_status("Running")),
    a_pod(status=pod_status("Running"), metadata=DELETING),
    a_pod(status=ended(0)),
    a_pod(status=ended(1)),
    a_pod(attempt=2, status=pod_status("Running")),
]
JOBS = [
    (a_job(gpus=gpus) if end == "new" else with_attempts(attempt(1, end), gpus=gpus))
    for gpus in (1, 2)
    for end in ("new", None, Outcome.FAILED, Outcome.SUSPENDED, Outcome.SUCCEEDED)
]


@given(
    job=st.sampled_from(JOBS),
    change=st.sampled_from([{}, {"suspend": True}]),
    pods=st.lists(st.sampled_from(PODS), max_size=2, unique_by=lambda pod: pod.attempt),
    allocated=st.sampled_from([None, 1, 2]),
    servers=st.sampled_from([1, 2]),
    claims=st.lists(
        st.builds(a_job_claim, attempt=st.sampled_from([1, 2]), allocated=st.booleans()), max_size=2
    ),
    missing=st.sampled_from([set(), {"pod-train-1"}]),
)
def test_no_plan_gives_a_gpu_to_two_pods_or_takes_it_from_one_that_may_run(
    *,
    job: SharedGPUJob,
    change: dict[str, Any],
    pods: list[PodView],
    allocated: int | None,
    servers: int,
    claims: list[ClaimView],
    missing: set[str],
) -> None:
    job = job.model_copy(update={"spec": job.spec.model_copy(update=change)})
    complete = allocated is not None and servers == job.spec.gpus
    known = {a.number for a in job.status.attempts} | ({allocated} if complete else set())
    having = [pod for pod in pods if pod.node or pod.attempt in known]
    there = around(
        *having,
        waiting_pods=[pod for pod in pods if pod not in having and pod.alive],
        allocated=allocated,
        servers=servers,
        claims={one.attempt: one for one in claims},
        missing=missing - {pod.uid for pod in pods},
    )
    made = plan_job(job, there, NOW)
    assert made == plan_job(job, there, NOW)
    # A job with GPUs wants no others, unless those are given back in the same write.
    assert not (made.wants_gpu and allocated and not made.release)
    assert not made.wants_gpu or made.next_attempt > max(
        (a.number for a in made.attempts), default=0
    )
    # A GPU is not taken from a Pod that may run, nor a claim from one that is there.
    running = {pod.attempt for pod in having if pod.alive}
    assert not (made.release and complete and allocated in running)
    alive = {pod.attempt for pod in pods if pod.alive}
    assert not alive & {one.attempt for one in made.delete_claims}
    # One thing at a time.
    assert not (made.read_missing and made.wants_gpu)
