"""Recognizes attempts that ended because the memory above their guarantee was not there for them.

There are two kinds, and both need a ceiling above the guarantee:

- MPS evicts a program above its guarantee when another job needs the memory within its own. The
  program's next CUDA call fails with error 810, CUDA_ERROR_MPS_CLIENT_TERMINATED
  (https://docs.nvidia.com/deploy/mps/mpsv3-memory-partitioning.html, "MPS Pressure Handling and
  Eviction").
- A program asks for more than its guarantee and less than its ceiling, and the GPU is full. It runs
  out of memory, because a program above its guarantee evicts no other.

Such an attempt ends as `Reclaimed`. It counts against no limit, and the job is queued first among
those of its priority. `memory_request` raises its guarantee if this happens again and again. From
then on there is also a backoff (`attempts.back_off`), in case its quota or the GPU has no more.

A program that handles the error and goes on, or ends with exit code 0, is not affected. A program
can print the error itself; what it gains is to be started again later, which the backoff bounds.
"""

from collections.abc import Sequence
from typing import Final

from partita.models import Attempt, Outcome
from partita.pods.outcome import PodOutcome
from partita.scheduling.memory_request import UNCHANGED_RECLAIMS
from partita.scheduling.reasons import gib

__all__ = ["judge_eviction", "judge_refused_borrowing", "nearly", "reclaims_above_limit"]

_AGAIN: Final = (
    f"it is queued again first, and gets a larger guarantee if that happens more than "
    f"{UNCHANGED_RECLAIMS} times"
)
_SHARE_PERCENT: Final = 90
"""Percent of an amount that a program must have needed for a refusal to be due to that amount."""


def judge_eviction(
    seen: PodOutcome, attempt: Attempt, peak: int | None
) -> tuple[Outcome, str] | None:
    """Return outcome and message of an attempt that MPS evicted; None if it did not.

    Parameters
    ----------
    peak
        Measured peak memory of the attempt, in bytes; None if it was not measured.
    """
    borrowed = _can_borrow(attempt) and peak is not None and peak > attempt.memory
    if not seen.mps_terminated or not borrowed or peak is None:
        return None
    said = (
        f"MPS ended it because another job needed the memory that it used above its guarantee "
        f"({gib(peak)} used, {gib(attempt.memory)} guaranteed); {_AGAIN}: {seen.message}"
    )
    return Outcome.RECLAIMED, said


def judge_refused_borrowing(
    seen: PodOutcome, attempt: Attempt, peak: int
) -> tuple[Outcome, str] | None:
    """Return outcome and message of an attempt that could not borrow; None if it was not that.

    Parameters
    ----------
    seen
        The outcome of its Pod: "CUDA out of memory" below its ceiling.
    peak
        Measured peak memory of the attempt, in bytes.
    """
    needed = peak + seen.refused_memory
    if not _can_borrow(attempt) or not nearly(needed, attempt.memory):
        return None
    said = (
        f"no spare memory was left for what it needed above its guarantee ({gib(needed)} needed, "
        f"{gib(attempt.memory)} guaranteed); {_AGAIN}: {seen.message}"
    )
    return Outcome.RECLAIMED, said


def nearly(needed: int, limit: int) -> bool:
    """Return whether a program needed so much that it was refused because of a limit."""
    return needed * 100 >= limit * _SHARE_PERCENT


def _can_borrow(attempt: Attempt) -> bool:
    return (attempt.memory_limit or 0) > attempt.memory > 0


def reclaims_above_limit(attempts: Sequence[Attempt]) -> int:
    """Return how often the memory of a job was reclaimed since it is to be prevented."""
    times = sum(a.outcome is Outcome.RECLAIMED for a in attempts)
    return max(0, times - UNCHANGED_RECLAIMS)
