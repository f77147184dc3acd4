"""How a job's attempts go and end, derived from its Pods and its GPUs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import takewhile

from partita.informer.views import PodView
from partita.models import Allocation, Attempt, Outcome, SharedGPUJob
from partita.pods.job_pod import pod_name
from partita.pods.outcome import POD_DELETED, PodOutcome
from partita.reconcile.fault_policy import Ending
from partita.reconcile.pod_creation import POD_NOT_FOUND, PodCreation
from partita.reconcile.reasons import gib
from partita.reconcile.system_failures import judge_mps_error, judge_refusal

__all__ = [
    "Ending",
    "JobContext",
    "back_off",
    "delay",
    "judged_at",
    "observe",
    "peak_of",
    "trim",
    "why_ended",
]

FIRST_BACK_OFF = 2.0
"""Seconds before the first retry of a failed program, doubled each time (an assumption; batch/v1
Job starts at 10 s)."""
MAX_BACK_OFF = 300.0
"""Most seconds before a retry; batch/v1 Job uses 6 minutes."""
JUDGEMENT_DELAY = timedelta(seconds=2)
"""For which a failure that others may have brought about waits to be judged. The agent tells of
a fault within half a second and of a job's peak within one; the rest is for the way."""
MAX_ATTEMPTS_KEPT = 20
"""Attempts kept in the status; those that count against a limit are all kept."""

_COUNTED = {
    Outcome.FAILED,
    Outcome.NOT_STARTED,
    Outcome.OUT_OF_MEMORY,
    Outcome.SYSTEM_FAILURE,
}
_EXTERNAL_ENDS = {Outcome.EVICTED, Outcome.GPU_FAULT, Outcome.NODE_LOST, Outcome.POD_DELETED}
"""Ends that neither the program nor the operator wanted."""


@dataclass(frozen=True, slots=True)
class JobContext:
    """What a job's plan depends on beside the job itself."""

    pods: Sequence[PodView]
    """Its Pods, by attempt."""
    allocated: Mapping[str, Allocation]
    """What it has allocated, by GPUServer."""
    uuids: Mapping[str, str]
    """UUIDs of those GPUs."""
    nodes: Mapping[str, str]
    """Nodes of those GPUs."""
    node_exists: Callable[[str], bool]
    ending: Ending | None
    """Why its attempt is to be ended: preemption, a drained or faulted GPU."""
    peak: int | None
    """Most GPU memory that it was seen to use, bytes."""
    first_use: datetime | None = None
    """When it was first seen to use the GPU, by the node's clock."""
    enforced: bool = True
    """Whether the agent ends programs that are above their allocation."""
    ended_since: Mapping[int, datetime] = field(default_factory=dict)
    """When the Pods that are over were first seen to be, by attempt."""
    beside: Sequence[str] = ()
    """Jobs that share its GPUs."""
    known: Sequence[Attempt] = ()
    """Attempts that were seen already and are perhaps not yet in its status."""
    may_start: bool = True
    """Whether a Pod may be made: its partition is there, and none of its GPUs is drained."""
    nothing_larger: str = ""
    """Why it is not started again: it ran out of all the memory that it can get. Else empty."""
    preemption_grace: int = 60
    """Seconds that its Pod has to terminate at most when it is preempted."""
    status_refused: bool = False
    """The API server never takes its status, so nothing waits for that."""
    system_failures: int = 0
    """Attempts that ended as SystemFailure, since it was last retried."""
    above_processes: str = ""
    """Why the agent ended a client of it: it had more than its `processes`. Else empty."""
    node_ready: Callable[[str], bool] = lambda _: True
    """Whether a node's kubelet answers."""
    start_timeout: float = 600.0
    """Seconds that its Pod may take to start."""
    not_created: str = ""
    """Why the Pod of its allocation could not be created yet; empty when nothing is known."""
    creation: PodCreation = PodCreation.UNKNOWN
    """What is known of the Pod of its allocation as long as that is not among `pods`."""


def observe(
    job: SharedGPUJob, saved: Mapping[int, Attempt], context: JobContext, now: datetime
) -> dict[int, Attempt]:
    """Bring the attempts up to date with the Pods."""
    attempts = {a.number: a for a in context.known} | dict(saved)
    pods = {p.attempt: p for p in context.pods}
    for number, attempt in attempts.items():
        if attempt.outcome is None and number not in pods:
            lost = bool(attempt.node) and not context.node_exists(attempt.node)
            outcome = Outcome.NODE_LOST if lost else Outcome.POD_DELETED
            said = f"node {attempt.node} is gone" if lost else POD_DELETED
            update = {"outcome": outcome, "end_time": now, "message": said}
            attempts[number] = attempt.model_copy(update=update)
    latest = max(saved, default=0)
    for number, pod in pods.items():
        if number not in saved and number < latest and not pod.alive:
            continue  # it was trimmed: what its Pod says is not the whole truth
        # What was made of its Pod earlier, and is not written down, is open to revision.
        old = saved.get(number) or _new_attempt(job, attempts, pod, context)
        attempts[number] = _observed(old, pod, context, now)
    return attempts


def _new_attempt(
    job: SharedGPUJob, attempts: Mapping[int, Attempt], pod: PodView, context: JobContext
) -> Attempt:
    before = attempts.get(pod.attempt - 1)
    mine = {s: a for s, a in context.allocated.items() if a.attempt == pod.attempt}
    first = next(iter(mine.values()), None)
    return Attempt(
        number=pod.attempt,
        pod=pod_name(job.metadata.name, pod.attempt),
        pod_uid=pod.uid,
        servers=tuple(mine),
        gpus=tuple(context.uuids[s] for s in mine),
        node=next((context.nodes[s] for s in mine), ""),
        memory=first.memory if first else 0,
        queued_time=before.end_time if before else job.metadata.creation_timestamp,
        booked_time=first.since if first else None,
        beside=tuple(context.beside),
    )


def _observed(attempt: Attempt, pod: PodView, context: JobContext, now: datetime) -> Attempt:
    seen = pod.outcome
    update: dict[str, object] = {}
    start = attempt.start_time
    if not attempt.pod_uid and attempt.outcome is None:
        update["pod_uid"] = pod.uid
    if pod.node and not attempt.node:
        update["node"] = pod.node
    if seen.started_at and start is None:
        # The node's clock may be off; ours said when the allocation was made and what is now.
        start = min(max(seen.started_at, attempt.booked_time or now), now)
        update["start_time"] = start
    if attempt.outcome is None and (used := _first_use(pod, start, context, now)):
        update["first_use_time"] = used
    until = judged_at(pod, attempt, context)
    if seen.finished and attempt.outcome is None and (until is None or until <= now):
        outcome, message = _verdict(pod, attempt, context)
        update |= {
            "outcome": outcome,
            "fault_suspect": _is_suspect(outcome, context),
            "end_time": _end_time(seen, start, now),
            "exit_code": seen.exit_code,
            "message": message,
            "reason": seen.reason if outcome is Outcome.EVICTED else "",
            "peak_memory": peak_of(pod, context),
        }
    return attempt.model_copy(update=update) if update else attempt


def _is_older(pod: PodView, context: JobContext) -> bool:
    """Tell whether what was seen to be used is still that of an attempt before."""
    first, accepted = context.first_use, pod.outcome.accepted_at
    return first is not None and accepted is not None and first < accepted


def peak_of(pod: PodView | None, context: JobContext) -> int | None:
    """Return the most GPU memory that an attempt was seen to use; None where nobody saw."""
    return None if pod is not None and _is_older(pod, context) else context.peak


def _first_use(
    pod: PodView, start: datetime | None, context: JobContext, now: datetime
) -> datetime | None:
    """Tell by our clock when an attempt used the GPU first."""
    first, started = context.first_use, pod.outcome.started_at
    if first is None or start is None or started is None or _is_older(pod, context):
        return None
    return min(max(start, start + (first - started)), now)


def judged_at(pod: PodView, attempt: Attempt, context: JobContext) -> datetime | None:
    """When a failure is judged that others may have brought about; None for at once.

    What a neighbour did to it, or that it was above its allocation, comes from the agent, and
    perhaps later than the Pod's end does from kubelet.
    """
    seen = pod.outcome
    since = context.ended_since.get(pod.attempt)
    if since is None:
        return None
    outcome, _ = _verdict(pod, attempt, context)
    unmeasured = outcome is Outcome.OUT_OF_MEMORY and peak_of(pod, context) is None
    if outcome is Outcome.SYSTEM_FAILURE or unmeasured:
        return since + JUDGEMENT_DELAY
    others_may = seen.ended_from_outside or seen.gpu_error
    return since + JUDGEMENT_DELAY if others_may and outcome is Outcome.FAILED else None


def _verdict(pod: PodView, attempt: Attempt, context: JobContext) -> tuple[Outcome | None, str]:
    """Say how an attempt ended; a failure that somebody else brought about is not its own."""
    seen = pod.outcome
    peak = peak_of(pod, context)
    if seen.outcome is Outcome.FAILED:
        if context.ending is not None and context.ending.outcome is Outcome.GPU_FAULT:
            return context.ending.outcome, context.ending.message
        if pod.deleting:
            return Outcome.POD_DELETED, POD_DELETED
        above = peak is not None and peak > attempt.memory > 0 and context.enforced
        if seen.ended_from_outside and peak is not None and above:
            facts = f"it used {gib(peak)} of GPU memory with {gib(attempt.memory)} allocated"
            return Outcome.OUT_OF_MEMORY, f"{facts}, and was ended: {seen.message}"
        if seen.ended_from_outside and context.above_processes:
            return Outcome.FAILED, f"{context.above_processes}: {seen.message}"
        if (judged := judge_mps_error(seen, used_gpu=bool(peak))) is not None:
            return judged
    if seen.outcome is Outcome.OUT_OF_MEMORY and attempt.memory:
        return judge_refusal(seen, peak, attempt.memory, context.system_failures)
    return seen.outcome, seen.message


def _is_suspect(outcome: Outcome | None, context: JobContext) -> bool | None:
    """Tell whether an attempt that ended may have caused a GPU fault; None where none ended it."""
    ended = context.ending is not None and outcome is Outcome.GPU_FAULT
    return context.ending.suspect if ended and context.ending else None


def _end_time(seen: PodOutcome, start: datetime | None, now: datetime) -> datetime:
    """Tell by our clock when a Pod ended: how long it ran is right whatever the node's says."""
    if seen.finished_at is None or seen.started_at is None or start is None:
        return now
    return min(start + (seen.finished_at - seen.started_at), now)


def why_ended(attempt: Attempt) -> str:
    """Say how an attempt ended."""
    code = f" with exit code {attempt.exit_code}" if attempt.exit_code else ""
    said = f": {attempt.message}" if attempt.message else ""
    return f"attempt {attempt.number} ended as {attempt.outcome}{code}{said}"


def back_off(attempts: Sequence[Attempt], now: datetime) -> datetime | None:
    """When the next attempt may be made after one that is likely to end as before.

    An end in the future is by a clock that was wrong, and nothing is reckoned from it: the next
    attempt is made at once, and its end will be by the clock of now.
    """
    # What a change of leaders ends keeps its place in the queue.
    attempts = [a for a in attempts if a.reason != POD_NOT_FOUND]
    if not attempts:
        return None
    last = attempts[-1]
    if last.end_time is not None and last.end_time > now:
        return None
    if last.outcome in {Outcome.FAILED, Outcome.SYSTEM_FAILURE}:
        failures = sum(a.outcome is last.outcome for a in attempts)
    elif last.fault_suspect:
        # The first one is not held: it is most likely a victim, and keeps its place in the queue.
        failures = sum(bool(a.fault_suspect) for a in attempts) - 1
    else:
        failures = sum(1 for _ in takewhile(_never_ran, reversed(attempts)))
    if not failures:
        return None
    return (last.end_time or now) + timedelta(seconds=delay(failures))


def delay(times: int) -> float:
    """Return the seconds to wait after something has failed so many times in a row."""
    return min(FIRST_BACK_OFF * 2.0 ** min(times - 1, 32), MAX_BACK_OFF)


def _never_ran(attempt: Attempt) -> bool:
    """Tell of an attempt that was turned away, as by a kubelet out of devices."""
    never_ran = attempt.start_time is None and attempt.outcome in _EXTERNAL_ENDS
    return never_ran or attempt.outcome in {Outcome.EVICTED, Outcome.NOT_STARTED}


def trim(attempts: tuple[Attempt, ...], retried_after: int = 0) -> tuple[Attempt, ...]:
    """Keep the status small: of attempts that count against no limit only the last ones stay.

    Those that never had a Pod go first, since they contain least.

    Parameters
    ----------
    retried_after
        The last attempt that the limits no longer count, since somebody had the job retried.
    """
    surplus = len(attempts) - MAX_ATTEMPTS_KEPT
    if surplus <= 0:
        return attempts
    idle = [
        a
        for a in attempts[:-1]
        if a.outcome
        and (a.number <= retried_after or not (a.outcome in _COUNTED or a.fault_suspect))
    ]
    idle.sort(key=lambda a: (bool(a.pod), a.number))
    dropped = {a.number for a in idle[:surplus]}
    return tuple(a for a in attempts if a.number not in dropped)
