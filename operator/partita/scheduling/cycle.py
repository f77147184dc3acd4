"""One scheduling cycle of one partition: from its queue to the placements.

The steps: filter the jobs by namespace and quota, order the queue, place the jobs whose Pods have
been created for GPUs of an earlier cycle, raise the memory of claims that need more, serve
preemptors, jobs that were bypassed too often and lasting jobs, choose jobs to
preempt, call the policy, check its answer, and record why the remaining jobs wait.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from types import MappingProxyType

from partita.models import GPUPartition
from partita.scheduling.allocated_claim import Growth
from partita.scheduling.current_guard import keeps
from partita.scheduling.cycle_result import CycleResult
from partita.scheduling.cycle_steps import CycleSteps
from partita.scheduling.endable import ends_jobs
from partita.scheduling.partition_state import PartitionState
from partita.scheduling.reasons import for_room
from partita.scheduling.snapshot import snapshot_of
from partita.scheduling.waiting_jobs import WaitingJobs
from partita.store.state import State

__all__ = ["run_cycle"]


async def run_cycle(
    partition: GPUPartition,
    state: State,
    *,
    waiting: WaitingJobs,
    released: Mapping[str, set[str]],
    memory: PartitionState,
    now: datetime,
    growths: Mapping[str, Growth] = MappingProxyType({}),
    protected: Collection[str] = (),
) -> CycleResult:
    """Decide which jobs start now, and which claims get more memory.

    Parameters
    ----------
    waiting
        The jobs that wait for GPUs. They may change while the policy runs.
    released
        UIDs of claims whose allocations this cycle releases, by GPUServer. They count as free.
    memory
        State from earlier cycles. It is updated.
    growths
        The allocated claims that need more memory, by UID.
    protected
        UIDs of claims whose Pods cannot be evicted now.
    """
    cycle = CycleSteps(
        partition,
        state,
        waiting=waiting,
        released=released,
        memory=memory,
        now=now,
        growths=growths,
        protected=protected,
    )
    result, guard = cycle.result, cycle.guard()
    result.order = cycle.queue(guard)
    cycle.serve_reserved(guard)
    cycle.serve_growths(guard)
    outlook = cycle.serve_preemptors(guard) if ends_jobs(partition) else None
    cycle.serve_aged(guard)
    cycle.serve_lasting(guard)
    if outlook is not None:
        cycle.preempt(guard, outlook)
    else:
        memory.nominated.clear()
    guard = await cycle.ask_policy(guard)
    cycle.serve_deferred(guard)
    placed = {job.id for job, _ in result.placed}
    result.order = [
        job for job in result.order if job.id in placed or not keeps(job.id, state, released)
    ]
    where = {job.id: [guard.capacity[gpu].gpu for gpu in gpus] for job, gpus in result.placed}
    memory.aging.note(result.order, where)
    for job_id in placed:
        memory.nominated.pop(job_id, None)
    cycle.explain(guard, placed)
    waits = [job for job in result.order if job.id not in placed]
    waits = [job for job in waits if for_room(result.why[job.id].reason)]
    result.left = snapshot_of(partition, waits, guard.remaining(), tuple(guard.nodes.values()), now)
    result.allocated = {gpu.id: gpu for gpu in guard.gpus}
    return result
