"""Attempts that ended because other jobs needed the memory above their guarantee."""

import pytest

from jobs.plans import NOW, around, attempt, ended, last, with_attempts
from partita.jobs.attempts import Ending
from partita.jobs.lifecycle import Plan, plan_job
from partita.models import Outcome, Phase
from partita.scheduling.memory_request import UNCHANGED_RECLAIMS
from support.builders import GIB, a_pod, at, seconds

TERMINATED = "torch.AcceleratorError: CUDA error: the MPS client has been terminated by the server"
REFUSED = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 GiB"
RETRY = {"limit": 0, "outOfMemory": {"limit": 0}}


def judged(
    message: str, *, peak: float | None, limit: str | None = "20Gi", before: int = 0, **more: object
) -> Plan:
    """Plan a job with 8 GiB guaranteed whose program has ended so, after so many reclaims."""
    number = before + 1
    job = with_attempts(
        *(attempt(n, Outcome.RECLAIMED, memoryLimit=limit) for n in range(1, number)),
        attempt(number, memoryLimit=limit),
        retry=RETRY,
    )
    values = {
        "ended_since": {number: at(60)},
        "allocated": number,
        "peak": None if peak is None else int(peak * GIB),
        "contexts": GIB // 2,
    }
    pod = a_pod(attempt=number, status=ended(more.pop("exit_code", 1), message))
    return plan_job(job, around(pod, **(values | more)), NOW)


class TestEviction:
    def test_a_borrower_that_mps_ended_is_queued_again_and_not_charged(self):
        made = judged(TERMINATED, peak=12)
        assert (made.phase, last(made).outcome) == (Phase.QUEUED, Outcome.RECLAIMED)
        assert last(made).message == (
            "MPS ended it because another job needed the memory that it used above its guarantee "
            "(12.0 GiB used, 8.0 GiB guaranteed); it is queued again first, and gets a larger "
            f"guarantee if that happens more than 2 times: {TERMINATED}"
        )

    @pytest.mark.parametrize(
        ("peak", "limit"), [(7.9, "20Gi"), (12, None), (12, "8Gi"), (None, "20Gi")]
    )
    def test_a_job_that_did_not_borrow_was_not_evicted(self, peak: float | None, limit: str | None):
        assert last(judged(TERMINATED, peak=peak, limit=limit)).outcome is not Outcome.RECLAIMED

    def test_a_failure_with_another_message_is_its_own(self):
        made = judged("Segmentation fault", peak=12)
        assert (made.phase, last(made).outcome) == (Phase.FAILED, Outcome.FAILED)

    def test_a_fault_of_the_gpu_is_a_fault(self):
        fault = Ending(Outcome.GPU_FAULT, "shared-0: MPSFault", suspect=True)
        assert last(judged(TERMINATED, peak=12, ending=fault)).outcome is Outcome.GPU_FAULT

    def test_at_its_ceiling_with_its_contexts_it_has_not_exceeded_it(self):
        assert last(judged(TERMINATED, peak=20.4)).outcome is Outcome.RECLAIMED

    def test_above_its_ceiling_the_agent_has_ended_it(self):
        made = judged(TERMINATED, peak=22)
        assert last(made).outcome is Outcome.OUT_OF_MEMORY
        assert "it used 22.0 GiB of GPU memory with 20.0 GiB allocated" in last(made).message

    def test_too_many_processes_are_its_own_failure(self):
        made = judged(TERMINATED, peak=12, above_processes="it had 3 MPS clients with 1 allocated")
        assert last(made).outcome is Outcome.FAILED


class TestRefusedBorrowing:
    def test_a_job_below_its_ceiling_found_no_spare_memory(self):
        made = judged(REFUSED, peak=6)
        assert (made.phase, last(made).outcome) == (Phase.QUEUED, Outcome.RECLAIMED)
        assert (
            "no spare memory was left for what it needed above its guarantee (10.0 GiB needed, "
            in (last(made).message)
        )

    def test_at_its_ceiling_it_ran_out_of_memory(self):
        made = judged(REFUSED, peak=16)
        assert last(made).outcome is Outcome.OUT_OF_MEMORY

    def test_within_its_guarantee_the_gpu_was_full_which_is_a_system_failure(self):
        assert last(judged(REFUSED, peak=1)).outcome is Outcome.SYSTEM_FAILURE


class TestThrashing:
    @pytest.mark.parametrize(
        ("before", "delay"), [(0, None), (UNCHANGED_RECLAIMS - 1, None), (UNCHANGED_RECLAIMS, 2),
                              (UNCHANGED_RECLAIMS + 1, 4), (18, 300)],
    )  # fmt: skip
    def test_a_job_waits_longer_each_time_once_it_is_reclaimed_often(
        self, before: int, delay: int | None
    ):
        made = judged(
            TERMINATED, peak=12, before=before, allocated=None, ended_since={before + 1: at(90)}
        )
        assert last(made).outcome is Outcome.RECLAIMED
        end = last(made).end_time
        assert end is not None
        if delay is None:
            assert made.wants_gpu
        else:
            job = with_attempts(*(a.dump() for a in made.attempts), retry=RETRY)
            later = plan_job(job, around(), end + seconds(delay - 1))
            assert (later.reason, later.wake) == ("BackOff", end + seconds(delay))
            assert plan_job(job, around(), end + seconds(delay)).wants_gpu
