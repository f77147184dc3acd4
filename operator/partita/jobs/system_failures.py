"""Failures of a program that are caused by the GPU or MPS, not by the program.

There are two kinds, recognised by the end of the program's log and by the agent's measurements:

- CUDA's MPS errors 805 to 810 of a program that never used the GPU: MPS did not accept it. With
  error 810 the MPS server ends a client, also if the agent requests that because the job exceeds
  its allocation; such a client has used the GPU.
- "CUDA out of memory" of a job that needed less than 90 % of its allocation: the GPU itself was
  full. The needed memory is the measured peak plus the refused amount, if the program prints it: a
  program that requests all its memory at once has a small peak.

Such an attempt counts against no limit and does not increase the job's memory. The next one waits
for a backoff that doubles. Both kinds are recognised by text that a program can print itself, so
their number is limited: after three times, "out of memory" is a failure of the program, and after
twenty system failures the job ends with the reason SystemFailure.
"""

from collections.abc import Sequence
from typing import Final

from partita.jobs.reclaims import judge_refused_borrowing, nearly
from partita.models import Attempt, Outcome, SharedGPUJobStatus
from partita.pods.outcome import PodOutcome
from partita.scheduling.reasons import gib

__all__ = [
    "MAX_REFUSALS",
    "MAX_SYSTEM_FAILURES",
    "failures_of",
    "judge_mps_error",
    "judge_refusal",
    "too_many",
]

MAX_REFUSALS: Final = 3
"""System failures after which memory that is refused below the allocation is a failure of the
program. An assumption: the backoff spreads them over 14 s in addition to the attempts' own time,
and the agent ends a co-located job that exceeds its allocation within 2 s."""
MAX_SYSTEM_FAILURES: Final = 20
"""System failures after which a job ends. An assumption: with a backoff of up to 5 minutes they
take more than one hour."""


def judge_refusal(
    seen: PodOutcome, attempt: Attempt, peak: int | None, failures: int
) -> tuple[Outcome, str]:
    """Return outcome and message of an attempt whose program reported "CUDA out of memory".

    Parameters
    ----------
    peak
        Measured peak memory of the attempt, in bytes; None if it was not measured.
    failures
        System failures of the job so far.
    """
    refused, limit = seen.refused_memory, attempt.memory_limit or attempt.memory
    if peak is None or nearly(peak + refused, limit):
        return Outcome.OUT_OF_MEMORY, seen.message
    if (judged := judge_refused_borrowing(seen, attempt, peak)) is not None:
        return judged
    needed = f"with {gib(peak)} in use" + (f" and {gib(refused)} asked for" if refused else "")
    facts = f"GPU memory was refused to it {needed} of {gib(attempt.memory)} allocated"
    if failures < MAX_REFUSALS:
        said = f"{facts}: the GPU itself was full, which is not its failure: {seen.message}"
        return Outcome.SYSTEM_FAILURE, said
    said = (
        f"{facts} once more after {failures} system failures, so it counts as its own failure "
        f"(raise spec.gpuMemory if it asks for much at once): {seen.message}"
    )
    return Outcome.FAILED, said


def judge_mps_error(seen: PodOutcome, *, used_gpu: bool) -> tuple[Outcome, str] | None:
    """Return outcome and message of an attempt whose log ends with an MPS error.

    None if there is no such error, or if the failure is the program's own.

    Parameters
    ----------
    used_gpu
        Whether use of the GPU by the program was measured.
    """
    if not seen.mps_error or used_gpu:
        return None
    said = f"MPS did not let it use the GPU, which is not its failure: {seen.message}"
    return Outcome.SYSTEM_FAILURE, said


def failures_of(status: SharedGPUJobStatus) -> int:
    """Return the number of system failures of a job since the last requested retry."""
    after = status.retried_after or 0
    return sum(a.outcome is Outcome.SYSTEM_FAILURE and a.number > after for a in status.attempts)


def too_many(attempts: Sequence[Attempt]) -> bool:
    """Return whether a job had so many system failures that it is not started again."""
    return sum(a.outcome is Outcome.SYSTEM_FAILURE for a in attempts) >= MAX_SYSTEM_FAILURES
