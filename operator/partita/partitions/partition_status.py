"""The status of a GPUPartition: its GPUs, its queue and its policy. No I/O."""

from collections import Counter
from datetime import datetime

from partita.models import (
    Condition,
    GPUPartition,
    GPUPartitionStatus,
    GPUServer,
)
from partita.models.conditions import ConditionChanges
from partita.models.partition_status import (
    Capacity,
    EstimatedStarts,
    GPUSummary,
    PolicyStatus,
    QueueStatus,
    ShadowStatus,
)
from partita.partitions.unavailable_gpus import StuckPods, stuck_servers, why_unavailable
from partita.scheduling.gpu_state import server_state
from partita.scheduling.policy_runner import PolicyRunner
from partita.store.allocations import user_of
from partita.store.state import State
from partita_policies.start_times.calibration import Accuracy

__all__ = ["partition_status"]

_TROUBLE = {"Faulted", "Unready", "Mismatched"}
_MAX_MESSAGE = 300
"""Maximum characters of a GPU's message: a partition may have thousands of GPUs."""


def partition_status(
    partition: GPUPartition,
    state: State,
    runner: PolicyRunner | None,
    now: datetime,
    problem: StuckPods | None = None,
    *,
    starts: Accuracy | None = None,
) -> GPUPartitionStatus:
    """Compute the status of a partition.

    Parameters
    ----------
    runner
        Its policies; None before the first cycle.
    problem
        Why its server Pods could not be created; None if they could.
    starts
        How well it was estimated when jobs start; None before the first decision.
    """
    name = partition.metadata.name
    servers = state.servers_of(name)
    summary = tuple(_summary(server, partition, state) for server in servers)
    ready = [gpu for gpu in summary if gpu.state == "Ready"]
    entries = [item for server in servers for item in server.status.allocations.items()]
    holding, served = {uid for uid, _ in entries}, {user_of(*item) for item in entries}
    waiting = (len(uids) - len(served.intersection(uids)) for uids in state.unfinished_in(name))
    return GPUPartitionStatus(
        observed_generation=partition.metadata.generation,
        conditions=_conditions(
            partition,
            summary,
            runner,
            now,
            problem or stuck_servers(partition, state),
            readable=not state.unreadable.problem(partition.metadata.uid),
        ),
        gpus=len(ready),
        capacity=Capacity(
            gpus=len(summary),
            memory=sum(gpu.memory for gpu in summary),
            jobs=len(ready) * partition.spec.sharing.max_jobs_per_gpu,
        ),
        allocated=Capacity(
            gpus=sum(gpu.jobs > 0 for gpu in summary),
            memory=sum(gpu.allocated for gpu in summary),
            jobs=len(holding),
        ),
        queue=QueueStatus(
            queued=sum(waiting),
            running=len(holding),
            suspended=len(state.job_index.suspended.of(name)),
        ),
        policy=_policy(partition, runner),
        shadow=_shadow(runner),
        estimated_starts=_estimated(starts),
        gpu_summary=summary,
    )


def _summary(server: GPUServer, partition: GPUPartition, state: State) -> GPUSummary:
    allocations = server.status.allocations.values()
    gpu_state = server_state(server, partition, state)
    return GPUSummary(
        name=server.metadata.name,
        node=server.status.node,
        product=server.status.product,
        memory=partition.spec.allocatable(server.status.memory),
        allocated=sum(a.memory for a in allocations),
        jobs=len(allocations),
        state=gpu_state,
        enforcement=server.status.enforcement,
        message=why_unavailable(server, partition, gpu_state, state)[:_MAX_MESSAGE],
    )


def _describe(gpu: GPUSummary) -> str:
    """Return a GPU's name and state, with the reason for the state."""
    return f"{gpu.name} is {gpu.state}" + (f" ({gpu.message})" if gpu.message else "")


def _policy(partition: GPUPartition, runner: PolicyRunner | None) -> PolicyStatus:
    if runner is None:
        return PolicyStatus(active=partition.spec.policy.name)
    return PolicyStatus(
        active=runner.active,
        cycles=runner.cycles,
        fallbacks=runner.fallbacks,
        rejected=runner.rejected,
    )


def _shadow(runner: PolicyRunner | None) -> tuple[ShadowStatus, ...]:
    if runner is None:
        return ()
    return tuple(
        ShadowStatus(
            name=name,
            cycles=count.cycles,
            agreed=count.agreed,
            placements=count.placements,
            failures=count.failures,
            message=count.message,
            estimated=count.waits.jobs,
            wait_change=round(count.waits.mean),
        )
        for name, count in runner.shadow_counts.items()
    )


def _estimated(starts: Accuracy | None) -> EstimatedStarts | None:
    if starts is None or not starts.starts:
        return None
    return EstimatedStarts(
        started=starts.starts,
        held=starts.held,
        median_width=starts.width,
        median_error=starts.error,
    )


def _policy_reason(runner: PolicyRunner) -> str:
    if runner.failure or runner.active != runner.spec.name:
        return "FallbackDecides"
    return "PolicyUnavailable" if runner.problem else "Deciding"


def _conditions(
    partition: GPUPartition,
    summary: tuple[GPUSummary, ...],
    runner: PolicyRunner | None,
    now: datetime,
    stuck: StuckPods | None,
    *,
    readable: bool,
) -> tuple[Condition, ...]:
    wanted = partition.spec.gpus
    states = Counter(gpu.state for gpu in summary)
    trouble = [_describe(gpu) for gpu in summary if gpu.state in _TROUBLE]
    drained = [_describe(gpu) for gpu in summary if gpu.state == "Drained"]
    staying = len(summary) - states["Draining"]
    starting = states["Starting"] + max(0, wanted - staying)
    moving = starting + states["Draining"]
    changes = ConditionChanges(
        partition.status.conditions, partition.metadata.generation, now, readable=readable
    )
    all_ready = states["Ready"] == wanted and not moving and not trouble
    count = f"{states['Ready']} of {wanted} GPUs are ready"
    said_of_pods = [stuck.message] if stuck else []
    if trouble:
        why = "GPUsUnready"
    elif stuck:
        why = stuck.reason
    elif all_ready:
        why = "AllGPUsReady"
    else:
        why = next((s for s in ("Drained", "Draining") if states[s]), "Starting")
    changes.put(
        "Ready",
        holds=all_ready,
        reason=why,
        message="; ".join([count, *trouble, *drained, *said_of_pods]),
    )
    said = f"{starting} GPUs start, {states['Draining']} are released"
    changes.put(
        "Progressing",
        holds=moving > 0,
        reason="GPUsMoving" if moving else "Settled",
        message=said if moving else "",
    )
    failure = (runner.failure or runner.problem) if runner else ""
    degraded = [*trouble, *said_of_pods, *([failure] if failure else [])]
    changes.put(
        "Degraded",
        holds=bool(degraded),
        reason=why if trouble or stuck else "PolicyFailed" if failure else "AsExpected",
        message="; ".join(degraded),
    )
    if runner is not None:
        changes.put(
            "PolicyHealthy",
            holds=not failure,
            reason=_policy_reason(runner),
            message=failure,
        )
    return changes.conditions
