"""What becomes of a job whose attempt fails."""

from datetime import timedelta
from typing import Any

import pytest

from jobs.plans import NOW, around, attempt, ended, last, with_attempts, written
from partita.jobs.attempts import MAX_ATTEMPTS_KEPT, Ending
from partita.jobs.lifecycle import Plan, plan_job
from partita.models import Attempt, Outcome, Phase, SharedGPUJob, SharingMode
from partita.models.quantities import format_time
from support.builders import GIB, a_job, a_pod, at, pod_status, seconds

CUDA_OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"


class TestFailures:
    def test_a_failed_program_waits_before_its_next_start_unless_its_end_is_still_to_come(self):
        pod = a_pod(status=ended(3, "Traceback"))
        job = with_attempts(attempt())
        made = plan_job(job, around(pod, allocated=1), at(61))
        assert (made.phase, made.wants_gpu, made.release) == (Phase.QUEUED, False, False)
        job = written(job, made)
        assert plan_job(job, around(pod, allocated=1), at(61)).release
        made = plan_job(job, around(pod), at(61))
        assert (made.reason, made.wake, made.wants_gpu) == ("BackOff", at(62), False)
        assert made.message == (
            "attempt 1 ended as Failed with exit code 3: Traceback; next attempt at 12:01:02 UTC"
        )
        for now in (62, -3600):  # or the clock was wrong, then or now
            made = plan_job(job, around(pod), at(now))
            assert (made.wants_gpu, made.next_attempt, made.wake) == (True, 2, None)

    @pytest.mark.parametrize(("failures", "wait"), [(1, 2), (2, 4), (3, 8), (8, 256), (9, 300)])
    def test_the_wait_doubles_up_to_a_bound(self, failures: int, wait: int):
        job = with_attempts(
            *(attempt(n + 1, Outcome.FAILED) for n in range(failures)), retry={"limit": 100}
        )
        assert plan_job(job, around(), at(51)).wake == at(50) + seconds(wait)

    @pytest.mark.parametrize(("limit", "phase"), [(1, Phase.FAILED), (2, Phase.QUEUED)])
    def test_it_fails_for_good_beyond_the_limit(self, limit: int, phase: Phase):
        job = with_attempts(
            attempt(1, Outcome.FAILED),
            attempt(2, Outcome.PREEMPTED),
            attempt(3, Outcome.FAILED, exitCode=9, message="bad data"),
            retry={"limit": limit},
        )
        made = plan_job(job, around(), NOW)
        assert made.phase is phase
        if phase is Phase.FAILED:
            assert (made.reason, made.completion_time) == ("RetryLimitExceeded", at(50))
            assert made.message == (
                "it failed 2 times (retry.limit: 1); "
                "attempt 3 ended as Failed with exit code 9: bad data"
            )

    def test_out_of_gpu_memory_is_queued_again_at_once(self):
        job = with_attempts(attempt())
        pod = a_pod(status=ended(1, CUDA_OOM))
        made = plan_job(job, around(pod, allocated=1), NOW)
        assert (made.phase, last(made).outcome) == (Phase.QUEUED, Outcome.OUT_OF_MEMORY)
        assert plan_job(written(job, made), around(pod), NOW).wants_gpu

    def test_out_of_memory_has_a_limit_of_its_own(self):
        retry = {"limit": 0, "outOfMemory": {"limit": 1}}
        one = with_attempts(attempt(1, Outcome.OUT_OF_MEMORY), retry=retry)
        assert plan_job(one, around(), NOW).wants_gpu
        two = with_attempts(
            attempt(1, Outcome.OUT_OF_MEMORY), attempt(2, Outcome.OUT_OF_MEMORY), retry=retry
        )
        made = plan_job(two, around(), NOW)
        assert (made.phase, made.reason) == (Phase.FAILED, "OutOfMemory")
        assert made.message.startswith(
            "it ran out of GPU memory 2 times (retry.outOfMemory.limit: 1); attempt 2 ended as"
        )

    @pytest.mark.parametrize(
        "outcome", [Outcome.GPU_FAULT, Outcome.NODE_LOST, Outcome.POD_DELETED, Outcome.PREEMPTED]
    )
    def test_what_is_not_its_fault_counts_against_no_limit(self, outcome: Outcome):
        job = with_attempts(*(attempt(n, outcome) for n in range(1, 15)), retry={"limit": 0})
        assert plan_job(job, around(), NOW).wants_gpu

    @pytest.mark.parametrize(
        "outcome", [Outcome.EVICTED, Outcome.NODE_LOST, Outcome.GPU_FAULT, Outcome.NOT_STARTED]
    )
    def test_starts_that_come_to_nothing_slow_down(self, outcome: Outcome):
        turned_away = [attempt(n, outcome, startTime=None) for n in (1, 2, 3)]
        assert plan_job(with_attempts(*turned_away), around(), at(51)).wake == at(58)

    def test_a_finished_job_stays_finished_when_its_limit_is_raised(self):
        job = with_attempts(
            attempt(1, Outcome.FAILED),
            phase=Phase.FAILED,
            status={"reason": "RetryLimitExceeded", "message": "it failed 1 times"},
            retry={"limit": 5},
        )
        made = plan_job(job, around(), NOW)
        assert (made.phase, made.reason) == (Phase.FAILED, "RetryLimitExceeded")
        assert (made.message, made.wants_gpu) == ("it failed 1 times", False)


MPS_ENDED = "RuntimeError: CUDA error: the MPS client has been terminated by the server"
FAULT = Ending(Outcome.GPU_FAULT, "shared-0: MPSFault")


class TestFailuresThatOthersMayHaveBroughtAbout:
    def plan(self, *, said: str = MPS_ENDED, code: int = 1, now: float = 61, **fields: Any) -> Plan:
        """Plan for a job on 8 GiB whose Pod was first seen to have failed at 60 s."""
        job = with_attempts(attempt(), phase=Phase.RUNNING)
        pod = a_pod(status=ended(code, said))
        return plan_job(job, around(pod, allocated=1, ended_since={1: at(60)}, **fields), at(now))

    @pytest.mark.parametrize(
        ("code", "said"), [(1, MPS_ENDED), (1, "CUDA error: unspecified launch failure"), (137, "")]
    )
    def test_they_wait_a_moment_for_what_the_agent_says(self, code: int, said: str):
        made = self.plan(code=code, said=said, peak=8 * GIB)
        assert (made.phase, last(made).outcome, made.wake) == (Phase.RUNNING, None, at(62))
        assert (made.release, made.wants_gpu) == (False, False)
        made = self.plan(code=code, said=said, peak=8 * GIB, now=62)
        assert (made.phase, last(made).outcome) == (Phase.QUEUED, Outcome.FAILED)

    def test_others_do_not(self):
        assert last(self.plan(said="Traceback")).outcome is Outcome.FAILED
        assert last(self.plan(code=0)).outcome is Outcome.SUCCEEDED

    def test_a_fault_that_is_reported_meanwhile_has_brought_them_about(self):
        made = self.plan(ending=FAULT)
        assert (last(made).outcome, last(made).exit_code) == (Outcome.GPU_FAULT, 1)

    @pytest.mark.parametrize(("code", "said"), [(1, MPS_ENDED), (137, "")])
    def test_what_was_ended_above_its_allocation_ran_out_of_memory(self, code: int, said: str):
        made = self.plan(code=code, said=said, peak=16 * GIB)
        assert (last(made).outcome, last(made).peak_memory) == (Outcome.OUT_OF_MEMORY, 16 * GIB)
        facts = "it used 16.0 GiB of GPU memory with 8.0 GiB allocated, and was ended"
        assert last(made).message.startswith(facts)

    def test_what_its_contexts_took_is_not_above_its_allocation(self):
        made = self.plan(code=137, said="", peak=8 * GIB + GIB // 4, contexts=GIB // 2, now=62)
        assert last(made).outcome is Outcome.FAILED

    def test_where_nobody_ends_it_for_that_it_failed(self):
        made = self.plan(code=137, said="", peak=16 * GIB, mode=SharingMode.EXCLUSIVE, now=62)
        assert last(made).outcome is Outcome.FAILED

    def test_a_kill_for_the_nodes_memory_is_no_such_failure(self):
        status = ended(137)
        status["containerStatuses"][0]["state"]["terminated"]["reason"] = "OOMKilled"
        there = around(a_pod(status=status), allocated=1, ended_since={1: at(60)}, peak=16 * GIB)
        assert last(plan_job(with_attempts(attempt()), there, at(61))).outcome is Outcome.FAILED


class TestOverhead:
    """What it took before the program used the GPU."""

    def test_each_step_of_an_attempt_has_its_time(self):
        pod = a_pod(status=ended(0) | {"startTime": format_time(at(1))})
        made = plan_job(a_job(), around(pod, allocated=1, first_use=at(7)), NOW)
        end = last(made)
        times = (end.queued_time, end.booked_time, end.start_time, end.first_use_time)
        assert times == (at(0), at(1), at(2), at(7))

    def test_a_later_attempt_waits_from_the_end_of_the_one_before(self):
        job = with_attempts(attempt(1, Outcome.PREEMPTED))
        made = plan_job(job, around(a_pod(attempt=2), allocated=2), NOW)
        assert last(made).queued_time == at(50)

    def test_first_use_is_told_while_it_runs_and_stays(self):
        pod = a_pod(status=pod_status("Running", started=at(2)))
        job = with_attempts(attempt())
        made = plan_job(job, around(pod, allocated=1, first_use=at(7)), at(8))
        assert last(made).first_use_time == at(7)
        over = with_attempts(attempt(1, Outcome.SUCCEEDED, firstUseTime=format_time(at(7))))
        made = plan_job(over, around(a_pod(status=ended(0)), allocated=1, first_use=at(9)), NOW)
        assert last(made).first_use_time == at(7)

    @pytest.mark.parametrize("hours", [-5, 5])
    def test_a_node_with_a_wrong_clock_does_not_spoil_it(self, hours: int):
        off = timedelta(hours=hours)
        pod = a_pod(status=pod_status("Running", started=at(2) + off))
        there = around(pod, allocated=1, first_use=at(7) + off)
        made = plan_job(a_job(), there, at(20))
        start, used = last(made).start_time, last(made).first_use_time
        assert start is not None
        assert used == min(start + seconds(5), at(20))


class TestRetry:
    """The annotation `partita.dev/retry` of a job that failed."""

    FAILED = attempt(1, Outcome.FAILED)

    def job(self, request: str, *attempts: Any, status: Any = None, **spec: Any) -> SharedGPUJob:
        return with_attempts(
            *(attempts or (self.FAILED,)),
            phase=Phase.FAILED,
            status={"startTime": format_time(at(2)), "retry": "", **(status or {})},
            metadata={"annotations": {"partita.dev/retry": request}},
            retry={"limit": 0},
            **spec,
        )

    def test_a_new_value_queues_it_again_at_once_and_its_limits_count_anew(self):
        job = self.job("now", activeDeadlineSeconds=10)
        made = plan_job(job, around(), NOW)
        assert (made.phase, made.next_attempt) == (Phase.QUEUED, 2)
        assert not made.wants_gpu  # before that is written down
        assert (made.retry, made.retried_after) == ("now", 1)
        assert (made.start_time, made.completion_time) == (None, None)
        job = written(job, made)
        assert plan_job(job, around(), NOW).wants_gpu
        failed = Attempt.model_validate(attempt(2, Outcome.FAILED, startTime=format_time(at(95))))
        status = job.status.model_copy(update={"attempts": (*job.status.attempts, failed)})
        made = plan_job(job.model_copy(update={"status": status}), around(), NOW)
        assert (made.phase, made.reason) == (Phase.FAILED, "RetryLimitExceeded")
        assert "failed 1 times" in made.message

    def test_however_often_it_is_retried_its_status_stays_small(self):
        ended = [attempt(n, Outcome.FAILED) for n in range(1, 200)]
        job = self.job("now", *ended, status={"retriedAfter": 197})
        kept = [a.number for a in plan_job(job, around(), NOW).attempts]
        assert kept == list(range(200 - MAX_ATTEMPTS_KEPT, 200))

    def test_a_value_that_was_dealt_with_changes_nothing(self):
        made = plan_job(self.job("now", status={"retry": "now"}), around(), NOW)
        assert made.phase is Phase.FAILED

    def test_one_that_was_there_before_it_failed_is_no_request(self):
        running = self.job("old", attempt(), status={"phase": "Running"})
        made = plan_job(running, around(a_pod(status=pod_status("Running")), allocated=1), NOW)
        assert made.retry == "old"

    def test_what_succeeded_is_not_run_again(self):
        job = self.job("now", attempt(1, Outcome.SUCCEEDED), status={"phase": "Succeeded"})
        assert plan_job(job, around(), NOW).phase is Phase.SUCCEEDED

    def test_it_waits_for_what_is_left_of_the_last_attempt(self):
        job = self.job("now")
        there = around(allocated=1)
        made = plan_job(written(job, plan_job(job, there, NOW)), there, NOW)
        assert (made.phase, made.reason, made.release) == (Phase.QUEUED, "Ending", True)

    def test_an_attempt_is_counted_though_the_request_is_not_written_down_yet(self):
        later = a_pod(attempt=2, status=pod_status("Failed", exit_code=1))
        made = plan_job(self.job("now"), around(later, allocated=2), NOW)
        assert (last(made).outcome, made.wants_gpu) == (Outcome.FAILED, False)
