"""Attempts that ended because other jobs needed the memory above their guarantee."""

from typing import Any

import pytest

from jobs.plans import NO_RETRY, around, failed, last, with_attempts
from partita.jobs.attempts import Ending
from partita.jobs.lifecycle import Plan, plan_job
from partita.models import Outcome, Phase
from partita.scheduling.memory_request import UNCHANGED_RECLAIMS
from support.builders import GIB, at, seconds

TERMINATED = "torch.AcceleratorError: CUDA error: the MPS client has been terminated by the server"
REFUSED = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 GiB"
FAULT = Ending(Outcome.GPU_FAULT, "shared-0: MPSFault", suspect=True)


def judged(message: str, *, peak: float | None, limit: str | None = "20Gi", **more: Any) -> Plan:
    """Plan a job with 8 GiB guaranteed whose program has ended so, after so many reclaims."""
    used = None if peak is None else int(peak * GIB)
    return failed(message, limit=limit, peak=used, contexts=GIB // 2, **more)


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
        ("said", "peak", "more", "outcome", "words"),
        [
            # It did not borrow.
            (TERMINATED, 7.9, {}, Outcome.FAILED, ""),
            (TERMINATED, 12, {"limit": None}, Outcome.OUT_OF_MEMORY, "12.0 GiB of GPU memory with"),
            (TERMINATED, 12, {"limit": "8Gi"}, Outcome.OUT_OF_MEMORY, "with 8.0 GiB allocated"),
            (TERMINATED, None, {}, Outcome.SYSTEM_FAILURE, ""),
            # It borrowed, and failed for another reason.
            ("Segmentation fault", 12, {}, Outcome.FAILED, ""),
            (TERMINATED, 12, {"ending": FAULT}, Outcome.GPU_FAULT, "MPSFault"),
            (
                TERMINATED,
                22,
                {},
                Outcome.OUT_OF_MEMORY,
                "used 22.0 GiB of GPU memory with 20.0 GiB",
            ),
            (TERMINATED, 12, {"above_processes": "3 clients"}, Outcome.FAILED, ""),
            # At its ceiling with its contexts it has not exceeded it.
            (TERMINATED, 20.4, {}, Outcome.RECLAIMED, ""),
            # It was refused memory: above its guarantee, at its ceiling, and within its guarantee.
            (
                REFUSED,
                6,
                {},
                Outcome.RECLAIMED,
                "no spare memory was left for what it needed above",
            ),
            (REFUSED, 16, {}, Outcome.OUT_OF_MEMORY, ""),
            (REFUSED, 1, {}, Outcome.SYSTEM_FAILURE, ""),
        ],
    )
    def test_what_else_ended_it_is_told_apart(
        self, said: str, peak: float | None, more: dict[str, Any], outcome: Outcome, words: str
    ):
        made = last(judged(said, peak=peak, **more))
        assert made.outcome is outcome
        assert words in made.message


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
            job = with_attempts(*(a.dump() for a in made.attempts), retry=NO_RETRY)
            later = plan_job(job, around(), end + seconds(delay - 1))
            assert (later.reason, later.wake) == ("BackOff", end + seconds(delay))
            assert plan_job(job, around(), end + seconds(delay)).wants_gpu
