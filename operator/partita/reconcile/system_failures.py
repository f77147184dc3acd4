"""Failures of a program that the GPU's side brought about, not the program.

There are two kinds, recognised by the end of the program's log and by the agent's measurements:

- CUDA's MPS errors 805 to 810 of a program that never used the GPU: MPS did not let it in. With
  error 810 the MPS server ends a client, also where the agent asks for that because the job is
  above its allocation; such a client has used the GPU.
- "CUDA out of memory" of a job that needed less than 90 % of its allocation: the GPU itself was
  full. What it needed is its measured peak and, where the program says how much was refused, that
  too: a program that asks for all its memory at once has a small peak.

Such an attempt counts against no limit and does not make the job grow. The next one waits for a
backoff that doubles. Both kinds rest on text that a program can print by itself, so they do not
repeat for ever: "out of memory" is excused three times, after which it is a failure of the program,
and a job that MPS did not let in twenty times ends with the reason SystemFailure.
"""

from collections.abc import Sequence
from typing import Final

from partita.models import Attempt, Outcome, SharedGPUJobStatus
from partita.pods.outcome import PodOutcome
from partita.reconcile.reasons import gib

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
program. An assumption: with the backoff they are spread over 14 s beside the attempts' own time,
and the agent ends a neighbour that is above its allocation within 2 s."""
MAX_SYSTEM_FAILURES: Final = 20
"""System failures after which a job ends. An assumption: with a backoff of up to 5 minutes they
take more than an hour."""
_SHARE_PERCENT: Final = 90
"""Percent of its allocation that a job must have needed for a refusal to be its own."""


def judge_refusal(
    seen: PodOutcome, peak: int | None, allocated: int, failures: int
) -> tuple[Outcome, str]:
    """Say how an attempt ended whose program reported "CUDA out of memory".

    Parameters
    ----------
    peak
        Most memory that the attempt was seen to use, bytes; None where nobody measured.
    allocated
        Its allocation, bytes.
    failures
        System failures of the job so far.
    """
    refused = seen.refused_memory
    if peak is None or (peak + refused) * 100 >= allocated * _SHARE_PERCENT:
        return Outcome.OUT_OF_MEMORY, seen.message
    needed = f"with {gib(peak)} in use" + (f" and {gib(refused)} asked for" if refused else "")
    facts = f"GPU memory was refused to it {needed} of {gib(allocated)} allocated"
    if failures < MAX_REFUSALS:
        said = f"{facts}: the GPU itself was full, which is not its failure: {seen.message}"
        return Outcome.SYSTEM_FAILURE, said
    said = (
        f"{facts} once more after {failures} system failures, so it counts as its own failure "
        f"(raise spec.gpuMemory if it asks for much at once): {seen.message}"
    )
    return Outcome.FAILED, said


def judge_mps_error(seen: PodOutcome, *, used_gpu: bool) -> tuple[Outcome, str] | None:
    """Say how an attempt ended whose last words are an MPS error; None where that is its own.

    Parameters
    ----------
    used_gpu
        Whether the program was seen to use the GPU.
    """
    if not seen.mps_error or used_gpu:
        return None
    said = f"MPS did not let it use the GPU, which is not its failure: {seen.message}"
    return Outcome.SYSTEM_FAILURE, said


def failures_of(status: SharedGPUJobStatus) -> int:
    """Count the system failures of a job since it was last retried."""
    after = status.retried_after or 0
    return sum(a.outcome is Outcome.SYSTEM_FAILURE and a.number > after for a in status.attempts)


def too_many(attempts: Sequence[Attempt]) -> bool:
    """Tell whether a job had so many system failures that it is not started again."""
    return sum(a.outcome is Outcome.SYSTEM_FAILURE for a in attempts) >= MAX_SYSTEM_FAILURES
