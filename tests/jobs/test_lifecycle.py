"""What becomes of a job, state by state."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from jobs.plans import NOW, around, attempt, ended, gated, last, with_attempts, written
from partita.jobs.attempts import MAX_ATTEMPTS_KEPT, Ending
from partita.jobs.lifecycle import Plan, plan_job
from partita.models import Attempt, Outcome, Phase
from partita.models.quantities import format_time
from partita.store.views import PodView
from support.builders import DELETING, GIB, a_job, a_pod, at, pod_body, pod_status, seconds


class TestFromTheBeginningToTheEnd:
    def test_a_pod_that_does_not_run_yet_is_assigned(self):
        made = plan_job(a_job(), around(a_pod(node=""), allocated=1, beside=("team-a/other",)), NOW)
        assert (made.phase, made.wants_gpu, made.release) == (Phase.ASSIGNED, False, False)
        assert last(made) == Attempt(
            number=1,
            pod="train-1",
            pod_uid="pod-train-1",
            node="node-1",
            servers=("shared-0",),
            gpus=("GPU-shared-0",),
            memory=8 * GIB,
            queued_time=at(0),
            booked_time=at(1),
            beside=("team-a/other",),
        )

    def test_success_is_written_down_before_the_allocation_goes(self):
        pod = a_pod(status=ended(0))
        job = with_attempts(attempt(), phase=Phase.RUNNING)
        made = plan_job(job, around(pod, allocated=1, peak=3 * GIB), NOW)
        assert (made.phase, made.reason, made.release) == (Phase.SUCCEEDED, "Succeeded", False)
        assert (last(made).outcome, last(made).exit_code) == (Outcome.SUCCEEDED, 0)
        assert (last(made).end_time, made.completion_time) == (at(60), at(60))
        assert last(made).peak_memory == 3 * GIB
        after = plan_job(written(job, made), around(pod, allocated=1), NOW)
        assert (after.release, after.delete_pods, after.wants_gpu) == (True, (), False)
        assert after.attempts == made.attempts


class TestTimes:
    def test_the_deadline_ends_the_attempt_and_the_job(self):
        job = with_attempts(attempt(), activeDeadlineSeconds=60, phase=Phase.RUNNING)
        pod = a_pod(status=pod_status("Running", started=at(2)))
        assert plan_job(job, around(pod, allocated=1), at(61)).wake == at(62)
        made = plan_job(job, around(pod, allocated=1), at(62))
        assert (made.phase, made.reason) == (Phase.FAILED, "DeadlineExceeded")
        assert last(made).outcome is Outcome.DEADLINE_EXCEEDED
        assert made.delete_pods == ()  # not before it is written down
        job = written(job, made)
        made = plan_job(job, around(pod, allocated=1), at(63))
        assert (made.delete_pods, made.release) == ((pod,), False)
        dying = a_pod(status=pod_status("Running"), metadata=DELETING)
        assert plan_job(job, around(dying, allocated=1), at(63)).delete_pods == ()
        assert plan_job(job, around(allocated=1), at(64)).release

    def test_the_deadline_also_passes_while_it_waits_for_its_next_attempt(self):
        job = with_attempts(
            attempt(1, Outcome.PREEMPTED),
            activeDeadlineSeconds=60,
            status={"startTime": format_time(at(2))},
        )
        early = plan_job(job, around(), at(61))
        assert (early.wants_gpu, early.wake) == (True, at(62))
        late = plan_job(job, around(), at(62))
        assert (late.phase, late.reason) == (Phase.FAILED, "DeadlineExceeded")
        assert late.message == "it ran longer than activeDeadlineSeconds (60)"
        assert not late.wants_gpu

    def test_the_deadline_counts_from_the_first_start(self):
        job = with_attempts(
            attempt(1, Outcome.FAILED),
            attempt(2, startTime=format_time(at(55))),
            status={"startTime": format_time(at(2))},
            activeDeadlineSeconds=60,
        )
        pod = a_pod(attempt=2, status=pod_status("Running", started=at(55)))
        made = plan_job(job, around(pod, allocated=2), at(62))
        assert last(made).outcome is Outcome.DEADLINE_EXCEEDED

    @pytest.mark.parametrize("spec", [{"activeDeadlineSeconds": 60}, {"suspend": True}])
    def test_a_success_just_before_the_deadline_or_suspension_was_noticed_counts(self, spec):
        there = around(a_pod(status=ended(0)), allocated=1)
        assert plan_job(with_attempts(attempt(), **spec), there, NOW).phase is Phase.SUCCEEDED

    def test_a_suspended_job_does_not_run_into_its_deadline(self):
        job = with_attempts(
            attempt(1, Outcome.SUSPENDED), activeDeadlineSeconds=60, suspend=True,
            status={"startTime": format_time(at(2))},
        )  # fmt: skip
        made = plan_job(job, around(), NOW)
        assert (made.phase, made.wake) == (Phase.SUSPENDED, None)

    def test_a_finished_job_is_deleted_after_its_time_to_live(self):
        job = with_attempts(attempt(1, Outcome.SUCCEEDED), ttlSecondsAfterFinished=10)
        made = plan_job(job, around(), at(55))
        assert (made.expire, made.wake) == (False, at(60))
        assert not plan_job(job, around(), NOW).expire  # its end is not written down yet
        job = written(job, made)
        assert plan_job(job, around(), at(59)).wake == at(60)
        assert plan_job(job, around(), at(60)).expire
        assert not plan_job(job, around(), at(60)).release

    def test_a_job_that_goes_already_is_not_deleted_again(self):
        job = with_attempts(
            attempt(1, Outcome.SUCCEEDED), phase=Phase.SUCCEEDED, ttlSecondsAfterFinished=0,
            metadata=DELETING,
        )  # fmt: skip
        assert not plan_job(job, around(), NOW).expire

    @pytest.mark.parametrize("seconds_given", [2**31 - 1, 10**12, 10**18])
    def test_a_time_that_is_never_reached_changes_nothing(self, seconds_given: int):
        """An object may be older than the bound that its definition has now."""
        times = {"activeDeadlineSeconds": seconds_given, "ttlSecondsAfterFinished": seconds_given}
        job = a_job(**times)
        pod = a_pod(status=pod_status("Running", started=at(5)))
        made = plan_job(job, around(pod, allocated=1), NOW)
        assert made.phase is Phase.RUNNING
        assert made.wake is not None
        assert made.wake.year >= at(0).year + 68
        made = plan_job(job, around(a_pod(status=ended(0)), allocated=1), NOW)
        assert (made.phase, made.expire) == (Phase.SUCCEEDED, False)

    def test_without_a_time_to_live_it_stays(self):
        job = with_attempts(attempt(1, Outcome.SUCCEEDED), phase=Phase.SUCCEEDED)
        made = plan_job(job, around(), NOW + timedelta(days=400))
        assert (made.expire, made.wake) == (False, None)

    @pytest.mark.parametrize("hours", [-5, -1, 0, 1, 5])
    def test_a_node_with_a_wrong_clock_spoils_no_times(self, hours: int):
        off = timedelta(hours=hours)
        job = a_job(activeDeadlineSeconds=3000, ttlSecondsAfterFinished=600)
        running = a_pod(status=pod_status("Running", started=at(2) + off))
        made = plan_job(job, around(running, allocated=1), at(3))
        assert made.phase is Phase.RUNNING
        assert at(1) <= last(made).start_time <= at(3)
        assert made.wake == made.start_time + seconds(3000)
        job = written(job, made)
        over = a_pod(status=ended(0, started=at(2) + off, finished=at(60) + off))
        made = plan_job(job, around(over, allocated=1), at(61))
        assert at(59) <= last(made).end_time <= at(61)
        assert not plan_job(written(job, made), around(over, allocated=1), at(61)).expire

    def test_a_pod_that_kubelet_lost_sight_of_ends_now(self):
        pod = a_pod(status={"phase": "Failed", "reason": "NodeLost"})
        made = plan_job(with_attempts(attempt()), around(pod, allocated=1), NOW)
        assert (last(made).outcome, last(made).end_time) == (Outcome.NODE_LOST, NOW)


class TestSuspension:
    def test_a_new_job_that_is_suspended_waits_for_its_user(self):
        made = plan_job(a_job(suspend=True), around(), NOW)
        assert (made.phase, made.reason, made.wants_gpu) == (Phase.SUSPENDED, "Suspended", False)

    def test_a_running_job_is_ended_and_then_suspended(self):
        job = with_attempts(attempt(), suspend=True, phase=Phase.RUNNING)
        pod = a_pod(status=pod_status("Running"))
        made = plan_job(job, around(pod, allocated=1), NOW)
        assert (made.phase, last(made).outcome) == (Phase.SUSPENDED, Outcome.SUSPENDED)
        assert (made.delete_pods, made.release) == ((), False)
        made = plan_job(written(job, made), around(pod, allocated=1), NOW)
        assert (made.delete_pods, made.release) == ((pod,), False)

    def test_resumed_before_its_pod_is_gone_it_waits_for_that(self):
        job = with_attempts(attempt(1, Outcome.SUSPENDED))
        dying = a_pod(status=pod_status("Running"), metadata=DELETING)
        made = plan_job(job, around(dying, allocated=1), NOW)
        assert (made.phase, made.reason, made.wants_gpu) == (Phase.QUEUED, "Ending", False)
        assert made.message == "attempt 1 is still ending: attempt 1 ended as Suspended"
        assert not made.release
        assert plan_job(job, around(allocated=1), NOW).release
        assert plan_job(job, around(), NOW).wants_gpu

    def test_a_finished_job_cannot_be_suspended(self):
        job = with_attempts(attempt(1, Outcome.SUCCEEDED), suspend=True, phase=Phase.SUCCEEDED)
        assert plan_job(job, around(), NOW).phase is Phase.SUCCEEDED


class TestThingsThatVanish:
    def test_a_pod_deleted_by_hand_is_started_again(self):
        job = with_attempts(attempt(), phase=Phase.RUNNING)
        made = plan_job(job, around(allocated=1), NOW)
        assert (made.phase, last(made).outcome) == (Phase.QUEUED, Outcome.POD_DELETED)
        assert last(made).message == "the Pod was deleted"
        job = written(job, made)
        assert plan_job(job, around(allocated=1), NOW).release
        assert plan_job(job, around(), NOW).next_attempt == 2

    def test_a_pod_deleted_before_its_attempt_was_written_down_still_counts(self):
        there = around(a_pod(), allocated=1)
        seen = plan_job(a_job(), there, NOW)
        made = plan_job(a_job(), around(allocated=1, known=seen.attempts), NOW)
        assert (last(made).outcome, made.read_missing) == (Outcome.POD_DELETED, False)

    def test_a_program_that_ends_on_the_deletion_or_eviction_of_its_pod_did_not_fail(self):
        gone = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
        for conditions, outcome in (([], Outcome.POD_DELETED), ([gone], Outcome.EVICTED)):
            pod = a_pod(status=ended(143, conditions=conditions), metadata=DELETING)
            made = plan_job(with_attempts(attempt()), around(pod, allocated=1), NOW)
            assert last(made).outcome is outcome

    def test_a_program_that_succeeds_while_its_pod_is_deleted_has_succeeded(self):
        pod = a_pod(status=ended(0), metadata=DELETING)
        assert plan_job(a_job(), around(pod, allocated=1), NOW).phase is Phase.SUCCEEDED

    def test_a_pod_on_a_node_that_is_gone_is_deleted_without_its_word(self):
        job = with_attempts(attempt(), phase=Phase.RUNNING)
        pod = a_pod(status=pod_status("Running"))
        nowhere = around(pod, allocated=1, node_exists=lambda _: False)
        made = plan_job(job, nowhere, NOW)
        assert (last(made).outcome, made.delete_pods) == (Outcome.NODE_LOST, ())
        made = plan_job(written(job, made), nowhere, NOW)
        assert (made.delete_pods, made.grace, made.release) == ((pod,), 0, False)
        dying = a_pod(status=pod_status("Running"), metadata=DELETING)
        stuck = replace(nowhere, pods=(dying,))
        assert plan_job(written(job, made), stuck, NOW).delete_pods == (dying,)

    def test_pod_and_node_gone_together_is_a_lost_node(self):
        there = around(allocated=1, node_exists=lambda _: False)
        made = plan_job(with_attempts(attempt()), there, NOW)
        assert last(made).outcome is Outcome.NODE_LOST
        assert last(made).message == "node node-1 is gone"

    def test_one_vanished_allocation_of_two_is_enough(self):
        job = with_attempts(attempt(servers=["shared-0", "shared-1"]), gpus=2)
        pod = a_pod(status=pod_status("Running"))
        assert last(plan_job(job, around(pod, allocated=1, servers=2), NOW)).outcome is None
        made = plan_job(job, around(pod, allocated=1, servers=1), NOW)
        assert last(made).outcome is Outcome.EVICTED
        assert last(made).message == "its allocation is gone from the ledger"

    def test_a_job_that_is_being_deleted_starts_nothing(self):
        job = with_attempts(attempt(1, Outcome.POD_DELETED), metadata=DELETING)
        made = plan_job(job, around(), NOW)
        assert (made.phase, made.reason, made.wants_gpu) == (Phase.QUEUED, "Deleting", False)


class TestEndedOnPurpose:
    @pytest.mark.parametrize("outcome", [Outcome.PREEMPTED, Outcome.GPU_FAULT, Outcome.EVICTED])
    def test_the_end_is_written_down_then_the_pod_goes_then_the_allocation(self, outcome: Outcome):
        job = with_attempts(attempt(), phase=Phase.RUNNING)
        pod = a_pod(status=pod_status("Running"))
        there = around(pod, allocated=1, ending=Ending(outcome, "because"), peak=GIB)
        made = plan_job(job, there, NOW)
        assert (last(made).outcome, last(made).message) == (outcome, "because")
        assert (last(made).end_time, last(made).peak_memory) == (NOW, GIB)
        assert (made.delete_pods, made.release) == ((), False)
        job = written(job, made)
        assert plan_job(job, there, NOW).delete_pods == (pod,)
        assert plan_job(job, around(allocated=1), NOW).release
        made = plan_job(job, around(), at(400))
        assert (made.wants_gpu, made.next_attempt) == (True, 2)

    def test_a_program_that_succeeded_before_the_fault_has_succeeded(self):
        fault = Ending(Outcome.GPU_FAULT, "shared-0: MPSFault")
        made = plan_job(a_job(), around(a_pod(status=ended(0)), allocated=1, ending=fault), NOW)
        assert made.phase is Phase.SUCCEEDED

    def test_a_pod_that_waits_for_its_start_on_a_gpu_that_goes_is_ended(self):
        made = plan_job(a_job(), around(gated(), allocated=1, may_start=False), NOW)
        assert last(made).outcome is Outcome.EVICTED
        assert last(made).message == "its GPU takes no jobs any more"
        running = around(a_pod(status=pod_status("Running")), allocated=1, may_start=False)
        assert last(plan_job(a_job(), running, NOW)).outcome is None


class TestPreempted:
    """The time to terminate is bounded: others wait for its GPU."""

    def ended(self, grace: int, outcome: Outcome = Outcome.PREEMPTED, **metadata: Any) -> Plan:
        body = pod_body(status=pod_status("Running"), metadata=metadata)
        body["spec"]["terminationGracePeriodSeconds"] = grace
        pod = PodView.parse(body)
        job = with_attempts(attempt(1, outcome))
        return plan_job(job, around(pod, allocated=1, preemption_grace=60), NOW)

    @pytest.mark.parametrize(("own", "given"), [(86400, 60), (61, 60), (60, None), (5, None)])
    def test_its_pod_gets_its_own_grace_period_up_to_the_bound(self, own: int, given: int | None):
        made = self.ended(own)
        assert (len(made.delete_pods), made.grace, made.release) == (1, given, False)

    def test_a_pod_that_is_being_deleted_more_slowly_is_given_less(self):
        made = self.ended(30, deletionGracePeriodSeconds=86400, **DELETING)
        assert (len(made.delete_pods), made.grace) == (1, 60)
        made = self.ended(86400, deletionGracePeriodSeconds=60, **DELETING)
        assert made.delete_pods == ()

    def test_who_was_not_preempted_gets_all_that_it_asks_for(self):
        assert self.ended(86400, Outcome.SUSPENDED).grace is None


class TestWritesThatAreMissing:
    def test_a_pod_without_its_allocation_is_ended(self):
        made = plan_job(a_job(), around(a_pod(status=pod_status("Running"))), NOW)
        assert (last(made).outcome, last(made).memory) == (Outcome.EVICTED, 0)


class TestManyAttempts:
    def test_only_the_last_of_those_that_do_not_count_are_kept(self):
        many = [attempt(n, Outcome.PREEMPTED) for n in range(1, 60)]
        many[4] = attempt(5, Outcome.FAILED)
        made = plan_job(with_attempts(*many), around(), NOW)
        numbers = [a.number for a in made.attempts]
        assert len(numbers) == MAX_ATTEMPTS_KEPT
        assert 5 in numbers
        assert numbers[-1] == 59
        assert made.next_attempt == 60

    def test_a_pod_of_an_attempt_that_was_dropped_does_not_bring_it_back(self):
        kept = [attempt(n, Outcome.PREEMPTED) for n in range(40, 60)]
        made = plan_job(with_attempts(*kept), around(a_pod(attempt=3, status=ended(143))), NOW)
        assert [a.number for a in made.attempts] == list(range(40, 60))
        assert made.next_attempt == 60
