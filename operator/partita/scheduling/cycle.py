"""One scheduling cycle of one partition: from its queue to the placements.

The steps: filter the jobs by namespace and quota, order the queue, place the jobs whose Pods have
been created for GPUs of an earlier cycle, raise the memory of claims that need more, serve
preemptors, jobs that were bypassed too often and lasting jobs, choose jobs to
preempt, call the policy, check its answer, and record why the remaining jobs wait.
"""

from partita.scheduling.current_guard import keeps
from partita.scheduling.cycle_result import CycleResult
from partita.scheduling.cycle_steps import CycleSteps
from partita.scheduling.endable import ends_jobs
from partita.scheduling.reasons import for_room
from partita.scheduling.snapshot import snapshot_of

__all__ = ["Cycle"]


class Cycle(CycleSteps):
    """One scheduling cycle."""

    async def run(self) -> CycleResult:
        """Decide which jobs start now, and which claims get more memory."""
        result, guard = self.result, self.guard()
        result.order = self.queue(guard)
        self.serve_reserved(guard)
        self.serve_growths(guard)
        outlook = self.serve_preemptors(guard) if ends_jobs(self.partition) else None
        self.serve_aged(guard)
        self.serve_lasting(guard)
        if outlook is not None:
            self.preempt(guard, outlook)
        else:
            self.memory.nominated.clear()
        guard = await self.ask_policy(guard)
        self.serve_deferred(guard)
        placed = {job.id for job, _ in result.placed}
        result.order = [
            job
            for job in result.order
            if job.id in placed or not keeps(job.id, self.state, self.released)
        ]
        where = {job.id: [guard.capacity[gpu].gpu for gpu in gpus] for job, gpus in result.placed}
        self.memory.aging.note(result.order, where)
        for job_id in placed:
            self.memory.nominated.pop(job_id, None)
        self.explain(guard, placed)
        waits = [job for job in result.order if job.id not in placed]
        waits = [job for job in waits if for_room(result.why[job.id].reason)]
        result.left = snapshot_of(
            self.partition, waits, guard.remaining(), tuple(guard.nodes.values()), self.now
        )
        result.allocated = {gpu.id: gpu for gpu in guard.gpus}
        return result
