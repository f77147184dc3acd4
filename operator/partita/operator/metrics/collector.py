"""Metric samples computed from the current state. No I/O."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import get_args

from partita.accounting.daily_usage import Amounts
from partita.accounting.usage_meter import UsageMeter
from partita.decide.policy_runner import PolicyRunner
from partita.informer.state import State
from partita.models import GPUPartition, GPUServer, Phase, SharedGPUJob
from partita.models.crd import RESOURCES
from partita.models.gpu_server import Canary, GPUServerStatus, MPSStatus, RestartReason
from partita.operator.metrics import claim_definitions as c
from partita.operator.metrics import definitions as d
from partita.operator.metrics.definitions import Metric
from partita.partitions.partition_status import waits
from partita.reconcile.claims.workloads import workloads_of
from partita.reconcile.gpu_state import ServerState, server_state
from partita.reconcile.job_request import allocatable
from partita.reconcile.reasons import Reason, stalled
from partita.reconcile.workload_view import WorkloadPhase

__all__ = [
    "Sample",
    "gpu_samples",
    "partition_samples",
    "policy_samples",
    "usage_samples",
    "write_samples",
]

_GIB = 1 << 30
_OTHER = "Other"
"""Replaces an unknown reason: another program wrote the status."""
_NOT_WAITING = {Reason.SUSPENDED, Reason.OUT_OF_MEMORY, Reason.ALLOCATED, Reason.IDLE}
_REASONS = {
    **{r.value: stalled(r) for r in Reason if r not in _NOT_WAITING},
    _OTHER: False,
}
"""Reasons why jobs wait, and whether only a change of YAML helps."""
_ENFORCEMENTS = ("Driver", "Client")
_MPS_STATES = get_args(MPSStatus.model_fields["state"].annotation)


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of one metric."""

    metric: Metric
    value: float
    labels: tuple[str, ...] = ()


def write_samples(writes: Mapping[tuple[str, str], int]) -> Iterator[Sample]:
    """Yield the numbers of API writes, counted by the client."""
    for (how, resource), count in writes.items():
        verb, _, subresource = how.partition("/")
        yield Sample(d.API_WRITES, count, (verb, resource, subresource))


def partition_samples(state: State) -> Iterator[Sample]:
    """Yield the numbers of jobs and claims of each partition, and of unreadable objects."""
    for name, partition in state.partitions.items():
        yield Sample(d.WANTED, partition.spec.gpus, (name,))
        yield from _jobs(name, state)
    there = {*state.partitions, *(one.name for one in state.unreadable.of("gpupartitions"))}
    without_partition = sum(job.spec.partition not in there for job in state.jobs.values())
    without_partition += sum(
        n for (name, _), n in state.finished.counts.items() if name not in there
    )
    yield Sample(d.WITHOUT_PARTITION, without_partition)
    unreadable = Counter((one.plural, one.field) for one in state.unreadable)
    for kind, count in unreadable.items():
        yield Sample(d.UNREADABLE, count, kind)
    for resource in RESOURCES:
        if all(plural != resource.plural for plural, _ in unreadable):
            yield Sample(d.UNREADABLE, 0, (resource.plural, ""))


def _jobs(partition: str, state: State) -> Iterator[Sample]:
    holding = {u for server in state.servers_of(partition) for u in server.status.allocations}
    phases: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    oldest: datetime | None = None
    claims: Counter[str] = Counter()
    for claim in workloads_of(partition, state):
        claims[claim.phase] += 1
        if claim.phase == "Queued":
            reason = claim.reason if claim.reason in _REASONS else _OTHER
            reasons[reason] += 1
            if claim.created is not None and not _REASONS[reason]:
                oldest = min(oldest or claim.created, claim.created)
    for job in state.jobs_of(partition):
        phases[job.status.phase or Phase.QUEUED] += 1
        if waits(job, holding):
            reason = job.status.reason or Reason.SCHEDULING.value
            reason = reason if reason in _REASONS else _OTHER
            reasons[reason] += 1
            since = _waits_since(job)
            if since is not None and not _REASONS[reason]:
                oldest = min(oldest or since, since)
    for phase in Phase:
        count = phases[phase] + state.finished.counts[partition, phase.value]
        yield Sample(d.JOBS, count, (partition, phase.value))
    for word in get_args(WorkloadPhase):
        yield Sample(c.CLAIMS, claims[word], (partition, word))
    for word in _REASONS:
        yield Sample(d.QUEUE, reasons[word], (partition, word))
    if oldest is not None:
        yield Sample(d.OLDEST, oldest.timestamp(), (partition,))


def _waits_since(job: SharedGPUJob) -> datetime | None:
    attempts = job.status.attempts
    return attempts[-1].end_time if attempts else job.metadata.creation_timestamp


def policy_samples(partition: str, runner: PolicyRunner) -> Iterator[Sample]:
    """Yield the counters and the health of a partition's policies."""
    charge = (partition, runner.spec.name)
    yield Sample(d.DECISIONS, runner.cycles, charge)
    yield Sample(d.FALLBACKS, runner.fallbacks, charge)
    yield Sample(d.REJECTIONS, runner.rejected, charge)
    yield Sample(d.HEALTHY, not (runner.failure or runner.problem), charge)
    for name, count in runner.shadow_counts.items():
        yield Sample(d.SHADOW_DECISIONS, count.cycles, (partition, name))
        yield Sample(d.SHADOW_AGREEMENTS, count.agreed, (partition, name))
        yield Sample(d.SHADOW_FAILURES, count.failures, (partition, name))


def gpu_samples(state: State) -> Iterator[Sample]:
    """Yield the state, the allocations and the use of the GPUs."""
    for server in state.servers.values():
        yield from _gpu(server, state.partitions.get(server.spec.partition), state)


def _gpu(server: GPUServer, partition: GPUPartition | None, state: State) -> Iterator[Sample]:
    status, gpu = server.status, (server.spec.partition, server.metadata.name)
    if partition is not None:
        gpu_state = server_state(server, partition, state)
    else:
        gpu_state = "Unready" if state.unknown_of(server.spec.partition) else "Draining"
    what = (status.node, status.product, status.uuid, server.spec.mode.value)
    yield Sample(d.GPU_INFO, 1, gpu + what)
    for word in get_args(ServerState):
        yield Sample(d.GPU_STATE, word == gpu_state, (*gpu, word))
    yield Sample(d.GPU_MEMORY, status.memory, gpu)
    if partition is not None:
        yield Sample(d.GPU_ALLOCATABLE, allocatable(status.memory, partition), gpu)
    allocations = status.allocations.values()
    yield Sample(d.GPU_ALLOCATED, sum(a.memory for a in allocations), gpu)
    yield Sample(d.GPU_JOBS, len(allocations), gpu)
    if status.usage is not None:
        yield Sample(d.GPU_USED, status.usage.memory, gpu)
        yield Sample(d.GPU_UTILIZATION, status.usage.gpu_utilization / 100, gpu)
        unknown = status.usage.unknown_processes
        yield Sample(d.GPU_UNKNOWN, unknown.count if unknown else 0, gpu)
        uses = status.usage.jobs
        idle = sum(u in uses and uses[u].idle_since is not None for u in _claims_on(status))
        yield Sample(d.GPU_IDLE, idle, gpu)
        wrong = sum(use.limit_mismatch is not None for use in status.usage.jobs.values())
        yield Sample(d.GPU_WRONG_LIMITS, wrong, gpu)
    if status.enforcement is not None:
        for word in _ENFORCEMENTS:
            yield Sample(d.GPU_ENFORCEMENT, word == status.enforcement, (*gpu, word))
    if status.mps is not None:
        yield from _mps(status.mps, gpu)


def _claims_on(status: GPUServerStatus) -> Iterator[str]:
    return (uid for uid, entry in status.allocations.items() if entry.is_claim)


def _mps(mps: MPSStatus, gpu: tuple[str, str]) -> Iterator[Sample]:
    for word in _MPS_STATES:
        yield Sample(d.MPS_STATE, word == mps.state, (*gpu, word))
    yield Sample(d.MPS_CLIENTS, mps.clients, gpu)
    yield Sample(d.MPS_WEDGES, mps.wedges, gpu)
    for reason in get_args(RestartReason):
        yield Sample(d.MPS_RESTARTS, mps.restarts.get(reason, 0), (*gpu, reason))
    canary = mps.canary or Canary()
    yield Sample(d.CANARIES, canary.checks - canary.failures, (*gpu, "Passed"))
    yield Sample(d.CANARIES, canary.failures, (*gpu, "Failed"))
    if canary.checks:
        yield Sample(d.CANARY_TIME, canary.duration_milliseconds / 1000, gpu)


def usage_samples(state: State, meter: UsageMeter, *, by_namespace: bool) -> Iterator[Sample]:
    """Yield the accounted amounts by partition and, if requested, by namespace."""
    sums: defaultdict[tuple[str, str], Amounts] = defaultdict(Amounts)
    if not by_namespace:
        # If a counter is missing before its first event, `increase()` does not count that event.
        sums |= {(partition, ""): Amounts() for partition in state.partitions}
    for (partition, namespace), amounts in meter.totals.items():
        if partition in state.partitions:
            sums[partition, namespace if by_namespace else ""] += amounts
    for labels, amounts in sums.items():
        yield Sample(d.GPU_SECONDS_ALLOCATED, amounts.gpu_seconds_allocated, labels)
        yield Sample(d.GPU_SECONDS_USED, amounts.gpu_seconds_used, labels)
        yield Sample(d.MEMORY_SECONDS_ALLOCATED, amounts.gib_seconds_allocated * _GIB, labels)
        yield Sample(d.MEMORY_SECONDS_USED, amounts.gib_seconds_used * _GIB, labels)
