"""The progress and the outcomes of a job's attempts, derived from its Pods and its GPUs."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import takewhile

from partita.jobs.reclaims import judge_eviction, reclaims_above_limit
from partita.jobs.system_failures import judge_mps_error, judge_refusal
from partita.models import Allocation, Attempt, GPUServer, Outcome, SharedGPUJob, SharingMode
from partita.pods.framework_memory import budget_advice
from partita.pods.job_pod import pod_name
from partita.pods.outcome import POD_DELETED, PodOutcome
from partita.scheduling.agent_reports import AgentReport
from partita.scheduling.fault_policy import Ending
from partita.scheduling.reasons import gib
from partita.store.claim_view import ClaimView
from partita.store.views import PodView
from partita.times import Times

__all__ = [
    "Ending",
    "JobContext",
    "JobFindings",
    "back_off",
    "delay",
    "judged_at",
    "observe",
    "trim",
    "why_ended",
]

MAX_BACK_OFF = 300.0
"""Maximum seconds before a retry; batch/v1 Job uses 6 minutes."""
JUDGEMENT_DELAY = timedelta(seconds=2)
"""Delay before the outcome of a failure with a possible external cause is decided. The agent
reports a fault within half a second after kubelet has reported the end of its client, and a job's
peak memory within one second; the rest is for latency."""
_SAMPLED_WITHIN = timedelta(seconds=2)
"""Delay with which the agent misses a client that was killed. Kubernetes rounds the end of a
container down to a second."""
_FAILS_WITHIN = timedelta(seconds=10)
"""Time after a kill within which co-located programs end with its error. An assumption: CUDA
reports it at the program's next call, and the program needs a moment to exit."""
_KILLED_BESIDE = (
    "a co-located program was killed with work on the GPU, and others see that as their own error"
)
MAX_ATTEMPTS_KEPT = 20
"""Maximum number of attempts in the status. All attempts that count against a limit are kept."""

_COUNTED = {
    Outcome.FAILED,
    Outcome.NOT_STARTED,
    Outcome.OUT_OF_MEMORY,
    Outcome.SYSTEM_FAILURE,
}
_EXTERNAL_ENDS = {Outcome.EVICTED, Outcome.GPU_FAULT, Outcome.NODE_LOST, Outcome.POD_DELETED}
"""Outcomes caused neither by the program nor by the operator."""


@dataclass(slots=True)
class JobFindings:
    """What was found out about a job besides the state, by earlier plans and writes."""

    times: Times = Times()
    missing: Collection[str] = ()
    """UIDs of the Pod and the claim of its allocations that are lost, as the API server says: a
    claim, too, without an allocation while its Pod is on a node."""
    first_attempt: int = 1
    """The first usable attempt number. The names of lower ones are used by Pods of other owners."""
    ended_since: Mapping[int, datetime] = field(default_factory=dict)
    """When the operator first observed that a Pod has finished, by attempt."""
    status_refused: bool = False
    """Whether the API server rejects its status, so that nothing waits for a status write."""


@dataclass(frozen=True, slots=True)
class JobContext:
    """The inputs of a job's plan, besides the job itself."""

    pods: Sequence[PodView]
    """The Pods that have or had its GPUs, by attempt."""
    allocated: Mapping[str, Allocation]
    """Its allocations, by GPUServer."""
    waiting_pods: Sequence[PodView] = ()
    """Its Pods that were created for an allocation which they have not got yet."""
    findings: JobFindings = field(default_factory=JobFindings)
    servers: Mapping[str, GPUServer] = field(default_factory=dict)
    """The GPUServers of those allocations, by name. They have the same node and mode."""
    report: AgentReport = field(default_factory=AgentReport)
    """What the agents of those GPUs tell of its programs."""
    node_exists: Callable[[str], bool] = lambda _: True
    ending: Ending | None = None
    """Why its attempt must be ended: preemption, a drained or faulted GPU."""
    beside: Sequence[str] = ()
    """What is on the same GPUs as a new attempt."""
    known: Sequence[Attempt] = ()
    """Attempts from earlier plans that may not be in its status yet."""
    may_start: bool = True
    """Whether its Pod may start: its partition exists, and none of its GPUs is drained."""
    nothing_larger: str = ""
    """Why it is not started again: it ran out of the most memory that it can get. Else empty."""
    preemption_grace: int = 60
    """Maximum grace period of its Pod in seconds if it is preempted."""
    system_failures: int = 0
    """Attempts that ended as SystemFailure since the last requested retry."""
    node_ready: Callable[[str], bool] = lambda _: True
    """Whether a node is ready, by the node's name."""
    start_timeout: float = 600.0
    """Maximum seconds for its Pod to start."""
    claims: Mapping[int, ClaimView] = field(default_factory=dict)
    """The claims of its attempts, by number."""
    claim_lost: bool = False
    """Whether the claim of its allocations is among those that are missing."""

    @property
    def mode(self) -> SharingMode:
        """How its GPUs are shared."""
        return next((server.spec.mode for server in self.servers.values()), SharingMode.MPS)


def observe(
    job: SharedGPUJob, saved: Mapping[int, Attempt], context: JobContext, now: datetime
) -> dict[int, Attempt]:
    """Return the attempts, updated from the Pods."""
    attempts = {a.number: a for a in context.known} | dict(saved)
    if (gone := _gone(job, attempts, context, now)) is not None:
        attempts[gone.number] = gone
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
            continue  # it was trimmed, and its Pod does not contain all of its data
        # Earlier conclusions from its Pod that are not in the status yet can be revised.
        old = saved.get(number) or _new_attempt(job, attempts, number, pod.uid, context)
        attempts[number] = _observed(old, pod, context, now)
    return attempts


def _gone(
    job: SharedGPUJob, attempts: Mapping[int, Attempt], context: JobContext, now: datetime
) -> Attempt | None:
    """Return the end of an attempt that is allocated and whose Pod is gone before it was seen."""
    missing = context.findings.missing
    entry = next((a for a in context.allocated.values() if a.pod_uid in missing), None)
    if entry is None or entry.attempt in attempts:
        return None
    found = _new_attempt(job, attempts, entry.attempt, entry.pod_uid, context)
    update = {"outcome": Outcome.POD_DELETED, "end_time": now, "message": POD_DELETED}
    return found.model_copy(update=update)


def _new_attempt(
    job: SharedGPUJob,
    attempts: Mapping[int, Attempt],
    number: int,
    pod_uid: str,
    context: JobContext,
) -> Attempt:
    before, earlier = attempts.get(number - 1), attempts.get(number)
    mine = {s: a for s, a in context.allocated.items() if a.attempt == number}
    first = next(iter(mine.values()), None)
    return Attempt(
        number=number,
        pod=pod_name(job.metadata.name, number),
        pod_uid=pod_uid,
        servers=tuple(mine),
        gpus=tuple(context.servers[s].status.uuid for s in mine),
        node=next((context.servers[s].status.node for s in mine), ""),
        memory=first.memory if first else 0,
        memory_limit=first.memory_limit if first else None,
        queued_time=before.end_time if before else job.metadata.creation_timestamp,
        booked_time=first.since if first else None,
        beside=earlier.beside if earlier else tuple(context.beside),
    )


def _observed(attempt: Attempt, pod: PodView, context: JobContext, now: datetime) -> Attempt:
    seen = pod.outcome
    update: dict[str, object] = {}
    start = attempt.start_time
    if pod.node and not attempt.node:
        update["node"] = pod.node
    if seen.started_at and start is None:
        # The node's clock may be wrong. Allocation time and now are by the operator's clock.
        start = min(max(seen.started_at, attempt.booked_time or now), now)
        update["start_time"] = start
    if attempt.outcome is None and (used := _first_use(pod, start, context, now)):
        update["first_use_time"] = used
    until = judged_at(pod, attempt, context)
    if seen.finished and attempt.outcome is None and (until is None or until <= now):
        outcome, message = _verdict(pod, attempt, context)
        if outcome in {Outcome.FAILED, Outcome.OUT_OF_MEMORY}:
            advice = budget_advice(seen.over_budget, context.allocated, context.servers)
            message = f"{advice}: {message}" if advice else message
        update |= {
            "outcome": outcome,
            "fault_suspect": _is_suspect(outcome, context),
            "end_time": _end_time(seen, start, now),
            "exit_code": seen.exit_code,
            "message": message,
            "reason": seen.reason if outcome is Outcome.EVICTED else "",
            "peak_memory": context.report.peak,
        }
    return attempt.model_copy(update=update) if update else attempt


def _first_use(
    pod: PodView, start: datetime | None, context: JobContext, now: datetime
) -> datetime | None:
    """Return when an attempt first used the GPU, by the operator's clock."""
    first, started = context.report.first_use, pod.outcome.started_at
    if first is None or start is None or started is None:
        return None
    return min(max(start, start + (first - started)), now)


def judged_at(pod: PodView, attempt: Attempt, context: JobContext) -> datetime | None:
    """Return when the outcome of a failure is decided; None for at once.

    A failure with a possible external cause waits. The agent reports faults caused by a co-located
    job, or an exceeded allocation, and its report may arrive after kubelet's about the Pod's end.
    """
    seen = pod.outcome
    since = context.findings.ended_since.get(pod.attempt)
    if since is None:
        return None
    outcome, _ = _verdict(pod, attempt, context)
    unmeasured = outcome is Outcome.OUT_OF_MEMORY and context.report.peak is None
    if outcome in {Outcome.SYSTEM_FAILURE, Outcome.RECLAIMED} or unmeasured:
        return since + JUDGEMENT_DELAY
    others_may = seen.ended_from_outside or seen.gpu_error
    return since + JUDGEMENT_DELAY if others_may and outcome is Outcome.FAILED else None


def _verdict(pod: PodView, attempt: Attempt, context: JobContext) -> tuple[Outcome | None, str]:
    """Return outcome and message of an attempt; failures with an external cause are separated."""
    seen = pod.outcome
    report, peak = context.report, context.report.peak
    if seen.outcome is Outcome.FAILED:
        if (external := _external_cause(pod, context)) is not None:
            return external
        limit = attempt.memory_limit or attempt.memory
        # On an exclusive GPU the agent ends nothing that exceeds its allocation.
        shared = context.mode is not SharingMode.EXCLUSIVE
        above = shared and peak is not None and peak > limit + report.contexts
        if seen.ended_from_outside and peak is not None and above and limit:
            facts = f"it used {gib(peak)} of GPU memory with {gib(limit)} allocated"
            return Outcome.OUT_OF_MEMORY, f"{facts}, and was ended: {seen.message}"
        if seen.ended_from_outside and report.above_processes:
            return Outcome.FAILED, f"{report.above_processes}: {seen.message}"
        if (judged := judge_eviction(seen, attempt, peak)) is not None:
            return judged
        if (judged := judge_mps_error(seen, used_gpu=bool(peak))) is not None:
            return judged
    if seen.outcome is Outcome.OUT_OF_MEMORY and attempt.memory:
        return judge_refusal(seen, attempt, peak, context.system_failures)
    return seen.outcome, seen.message


def _external_cause(pod: PodView, context: JobContext) -> tuple[Outcome, str] | None:
    """Return outcome and message of a failed attempt that something else has ended; else None."""
    if context.ending is not None and context.ending.outcome is Outcome.GPU_FAULT:
        return context.ending.outcome, context.ending.message
    if pod.deleting:
        return Outcome.POD_DELETED, POD_DELETED
    seen = pod.outcome
    if seen.gpu_error and _is_explained(seen.finished_at, context.report.killed_beside):
        return Outcome.GPU_FAULT, f"{_KILLED_BESIDE}: {seen.message}"
    if seen.gpu_error and context.report.hardware:
        return Outcome.GPU_FAULT, f"its GPU has failed ({context.report.hardware}): {seen.message}"
    return None


def _is_explained(finished: datetime | None, killed: datetime | None) -> bool:
    """Return whether a CUDA error may be the effect of a co-located client that was killed.

    Both times are by the node's clock.
    """
    if finished is None or killed is None:
        return False
    return killed - _SAMPLED_WITHIN <= finished <= killed + _FAILS_WITHIN


def _is_suspect(outcome: Outcome | None, context: JobContext) -> bool | None:
    """Return whether an attempt may have caused the GPU fault that ended it; None without fault."""
    ended = context.ending is not None and outcome is Outcome.GPU_FAULT
    return context.ending.suspect if ended and context.ending else None


def _end_time(seen: PodOutcome, start: datetime | None, now: datetime) -> datetime:
    """Return when a Pod ended, by the operator's clock; only its duration is by the node's."""
    if seen.finished_at is None or seen.started_at is None or start is None:
        return now
    return min(start + (seen.finished_at - seen.started_at), now)


def why_ended(attempt: Attempt) -> str:
    """Return a message about how an attempt ended."""
    code = f" with exit code {attempt.exit_code}" if attempt.exit_code else ""
    said = f": {attempt.message}" if attempt.message else ""
    return f"attempt {attempt.number} ended as {attempt.outcome}{code}{said}"


def back_off(attempts: Sequence[Attempt], now: datetime, times: Times) -> datetime | None:
    """Return when the next attempt may start, after one whose failure is likely to repeat.

    An end time in the future comes from a wrong clock and is ignored: the next attempt starts at
    once, and its end time will be by the current clock.
    """
    if not attempts:
        return None
    last = attempts[-1]
    if last.end_time is not None and last.end_time > now:
        return None
    if last.outcome in {Outcome.FAILED, Outcome.SYSTEM_FAILURE}:
        failures = sum(a.outcome is last.outcome for a in attempts)
    elif last.outcome is Outcome.RECLAIMED:
        failures = reclaims_above_limit(attempts)
    elif last.fault_suspect:
        # There is no backoff after the first fault: the job is most likely not the cause, and keeps
        # its position in the queue.
        failures = sum(bool(a.fault_suspect) for a in attempts) - 1
    else:
        failures = sum(1 for _ in takewhile(_never_ran, reversed(attempts)))
    if not failures:
        return None
    return (last.end_time or now) + timedelta(seconds=delay(failures, times))


def delay(failures: int, times: Times) -> float:
    """Return the backoff in seconds after a number of consecutive failures."""
    return min(times.first_back_off * 2.0 ** min(failures - 1, 32), MAX_BACK_OFF)


def _never_ran(attempt: Attempt) -> bool:
    """Return whether an attempt never ran, for example because kubelet rejected its Pod."""
    never_ran = attempt.start_time is None and attempt.outcome in _EXTERNAL_ENDS
    return never_ran or attempt.outcome in {Outcome.EVICTED, Outcome.NOT_STARTED}


def trim(attempts: tuple[Attempt, ...], retried_after: int = 0) -> tuple[Attempt, ...]:
    """Remove the oldest attempts that count against no limit, to keep the status small.

    Parameters
    ----------
    retried_after
        The last attempt that no longer counts against the limits, because a retry was requested.
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
    dropped = {a.number for a in idle[:surplus]}
    return tuple(a for a in attempts if a.number not in dropped)
