"""The inputs of a job's plan, from the state."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from math import ceil

from partita.constants import OTHERS_JOB
from partita.jobs.attempts import Ending, JobContext
from partita.jobs.job_record import JobRecord
from partita.jobs.system_failures import failures_of
from partita.models import Allocation, Attempt, GPUServer, Outcome, SharedGPUJob
from partita.pods.termination import preemption_grace
from partita.scheduling import agent_reports
from partita.scheduling.fault_policy import ending_of
from partita.scheduling.gpu_state import drain_deadline, times_of
from partita.store.state import State
from partita.store.views import PodView

__all__ = ["context_of", "depends_on_unreadable"]


def context_of(job: SharedGPUJob, record: JobRecord, state: State, now: datetime) -> JobContext:
    """Return the inputs of a job's plan.

    Parameters
    ----------
    record
        What is known of the job besides the state, in which the ends of its Pods are noted.
    """
    uid = job.metadata.uid
    allocated, holder = state.allocated(uid), state.holder(uid)
    servers = {name: state.servers[name] for name in allocated}
    known = record.plan.attempts if record.plan else ()
    pods, waiting_pods = _divide(job, known, allocated, state)
    over = [pod.attempt for pod in pods if not pod.alive]
    record.ended_since = {attempt: record.ended_since.get(attempt, now) for attempt in over}
    times = times_of(job.spec.partition, state)
    return JobContext(
        pods=pods,
        allocated=allocated,
        waiting_pods=waiting_pods,
        findings=record,
        claims={claim.attempt: claim for claim in state.claims_of_user(uid)},
        claim_lost=holder in record.missing,
        servers=servers,
        report=agent_reports.report_of(holder, servers.values()),
        node_exists=lambda node: node in state.nodes,
        node_ready=lambda node: node not in state.nodes or state.nodes[node].ready,
        start_timeout=job.spec.pod_start_timeout or times.pod_start_timeout,
        ending=_ending(holder, pods, allocated, state, now) or record.ending,
        beside=_beside(job, known, allocated, state),
        known=known,
        may_start=_may_start(job, servers.values(), state),
        system_failures=failures_of(job.status),
        # 0 would release its GPUs before kubelet has ended it.
        preemption_grace=max(1, ceil(preemption_grace(times))),
    )


def depends_on_unreadable(job: SharedGPUJob, state: State) -> bool:
    """Return whether a job's allocations may be in an object that could not be read.

    Then the job is left unchanged: it is neither ended nor started again, and nothing is released.
    """
    uid = job.metadata.uid
    if not state.unknown_of(job.spec.partition):
        return False
    allocated = state.allocated(uid)
    alive = {a.number for a in job.status.attempts if a.outcome is None}
    alive |= {p.attempt for p in state.pods_of(uid) if p.alive}
    if not allocated:
        return bool(alive)
    return any(
        name not in state.servers
        for a in job.status.attempts
        if a.outcome is None
        for name in a.servers
    )


def _beside(
    job: SharedGPUJob,
    known: Iterable[Attempt],
    allocated: Mapping[str, Allocation],
    state: State,
) -> list[str]:
    """Return what is beside a new attempt; what is of other namespaces is `OTHERS_JOB`."""
    own = job.metadata
    numbers = {attempt.number for attempt in (*job.status.attempts, *known)}
    if numbers.issuperset(entry.attempt for entry in allocated.values()):
        return []
    ledgers = (state.servers[name].status.allocations for name in allocated)
    others = {uid: e for ledger in ledgers for uid, e in ledger.items() if e.job_uid != own.uid}
    keys = ((f"{e.namespace}/{e.user}", e.namespace) for e in others.values())
    return sorted(key if namespace == own.namespace else OTHERS_JOB for key, namespace in keys)


def _divide(
    job: SharedGPUJob,
    known: Iterable[Attempt],
    allocated: Mapping[str, Allocation],
    state: State,
) -> tuple[list[PodView], list[PodView]]:
    """Return the Pods of a job that have or had its GPUs, and those that wait for them."""
    uids = {attempt.pod_uid for attempt in (*job.status.attempts, *known)}
    if len(allocated) == job.spec.gpus:
        uids |= {entry.pod_uid for entry in allocated.values()}
    pods = state.pods_of(job.metadata.uid)
    having = [pod for pod in pods if pod.uid in uids or pod.node]
    return having, [pod for pod in pods if pod not in having and pod.alive]


def _may_start(job: SharedGPUJob, servers: Iterable[GPUServer], state: State) -> bool:
    partition = state.partitions.get(job.spec.partition)
    return (
        partition is not None
        and partition.metadata.deletion_timestamp is None
        and all(server.out_of_service_since is None for server in servers)
    )


def _ending(
    holder: str,
    pods: Iterable[PodView],
    allocated: Mapping[str, Allocation],
    state: State,
    now: datetime,
) -> Ending | None:
    """Return why the job's attempt must end, from the state of its GPUs."""
    for name, allocation in allocated.items():
        server = state.servers[name]
        fault = agent_reports.fault_of(server, state.server_pod(name))
        # A job whose client was killed, and so caused the fault, is judged by its Pod's end.
        cause = fault is not None and fault.killed == holder
        if fault is not None and not (cause and not any(p.alive for p in pods)):
            not_started = any(p.uid == allocation.pod_uid and p.not_started for p in pods)
            return ending_of(name, fault, allocation, started=not not_started)
        if wrong := agent_reports.wrong_limit_of(holder, server):
            return Ending(Outcome.SYSTEM_FAILURE, wrong)
        if (deadline := drain_deadline(name, state)) and deadline <= now:
            return Ending(Outcome.EVICTED, f"{name} is drained, and drainTimeout is over")
    return None
