"""GPUs held for a job that was bypassed too often.

A policy may start jobs from behind a waiting job, and the fair order puts younger jobs of other
namespaces before it, but only in a limited number of cycles. Then the job starts as soon as it
fits. For one such job at a time GPUs are held, on which no job of the same or a lower priority
starts before it.

Guarantees (docs/priorities.md; tests/scheduling/test_starvation.py):

- The order of priorities is strict. A job may wait for ever while jobs of a higher effective
  priority arrive. A held GPU never prevents the start of such a job.
- Once no job of a higher priority waits or arrives, a job starts within
  ``(max_bypasses + a + 1) * D + m * (n + 1) * D``, where jobs run at most ``D``, ``a`` jobs are
  older, ``n`` of these of its namespace, and ``m`` namespaces have jobs: namespaces take turns to
  have GPUs held, each for its oldest job.
- There is no guarantee for a job that is suspended, exceeds its namespace's quota, or is too large
  for every ready GPU, nor under a policy that starts no jobs on idle GPUs.

A reservation waits only for jobs that end: GPUs that would still lack room once only lasting jobs
run there are not held.

One reservation at a time is EASY backfilling (Lifka, JSSPP 1995). Unlike EASY, no job is started on
held GPUs because it is expected to end in time: run times on a shared GPU depend on the co-located
jobs, and estimates are poor (Mu'alem and Feitelson, IEEE TPDS 12(6), 2001).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from partita_policies.capacity import FreeCapacity
from partita_policies.types import GPU, Job

__all__ = ["Aging", "fit_among", "gpus_to_hold"]


class Aging:
    """Counts the cycles that bypassed each waiting job.

    Parameters
    ----------
    bypasses
        Earlier counts by UID, as far as they were stored.
    """

    def __init__(self, bypasses: Mapping[str, int] | None = None) -> None:
        self.bypasses = dict(bypasses or {})
        self._reserved = ""
        self._turns: dict[str, int] = {}

    def note(self, order: Sequence[Job], placed: Mapping[str, Sequence[GPU]]) -> None:
        """Count a cycle, which bypassed two kinds of jobs that were not placed.

        Those before the last placed job; and the first job of each namespace and priority, if a
        younger job of this priority got a GPU that it could use. The queue may put the younger job
        first, because its namespace holds less. It does so for ever while such jobs keep coming.

        Parameters
        ----------
        order
            The waiting jobs and the placed ones, in queue order.
        placed
            The GPUs of each placed job, by UID.
        """
        if not placed:
            return
        last = max((i for i, job in enumerate(order) if job.id in placed), default=-1)
        bypassed = {job.id for job in order[:last] if job.id not in placed}
        starts = [job for job in order if job.id in placed]
        firsts: dict[tuple[int, str], Job] = {}
        for job in order:
            if job.id not in placed:
                firsts.setdefault((job.priority, job.namespace), job)
        bypassed |= {
            job.id
            for job in firsts.values()
            if any(
                start.priority == job.priority
                and start.submitted > job.submitted
                and any(_could_use(job, gpu) for gpu in placed[start.id])
                for start in starts
            )
        }
        for job_id in bypassed:
            self.bypasses[job_id] = self.bypasses.get(job_id, 0) + 1
        for job_id in placed:
            self.bypasses.pop(job_id, None)

    def aged(self, order: Iterable[Job], limit: int) -> list[Job]:
        """Return the jobs that must not be bypassed again, in queue order."""
        if not self.bypasses:
            return []
        return [job for job in order if self.bypasses.get(job.id, 0) >= limit]

    def in_turn(self, aged: Iterable[Job]) -> list[Job]:
        """Sort aged jobs by the order in which GPUs are held for them.

        The highest priority comes first. Among equals, the job that had the last turn stays first.
        Then the namespaces take turns, each with its oldest job.
        """

        def turn(job: Job) -> tuple[int, bool, int, float, str]:
            had = self._turns.get(job.namespace, 0)
            return -job.priority, job.id != self._reserved, had, job.submitted, job.name

        return sorted(aged, key=turn)

    def reserve(self, job: Job) -> None:
        """Record that it is a job's turn."""
        if job.id != self._reserved:
            self._reserved = job.id
            self._turns[job.namespace] = max(self._turns.values(), default=0) + 1

    def keep_only(self, waiting: Collection[str]) -> None:
        """Remove the counts of jobs that no longer wait."""
        for job_id in [one for one in self.bypasses if one not in waiting]:
            del self.bypasses[job_id]


def _could_use(job: Job, gpu: GPU) -> bool:
    """Return whether a job could run on a GPU that nobody else uses."""
    return (
        job.memory <= gpu.memory
        and job.slots <= gpu.max_jobs
        and job.clients <= gpu.max_clients
        and (not job.products or gpu.product in job.products)
        and (not job.nodes or gpu.node in job.nodes)
    )


def _by_node(gpus: Iterable[GPU]) -> dict[str, list[GPU]]:
    nodes: dict[str, list[GPU]] = {}
    for gpu in gpus:
        nodes.setdefault(gpu.node, []).append(gpu)
    return nodes


def fit_among(job: Job, capacity: FreeCapacity, gpus: Iterable[GPU]) -> tuple[str, ...] | None:
    """Find GPUs among these on which a job fits now."""
    for candidates in _by_node(gpus).values():
        free = [gpu.id for gpu in candidates if capacity.why_not(job, gpu.id) is None]
        if len(free) >= job.gpus:
            return tuple(free[: job.gpus])
    return None


def gpus_to_hold(
    job: Job, capacity: FreeCapacity, gpus: Iterable[GPU], at_end: FreeCapacity
) -> tuple[str, ...] | None:
    """Choose the GPUs on which a job will fit soonest; None if it can never fit.

    GPUs with the least memory still to be released come first.

    Parameters
    ----------
    capacity
        The free capacity now.
    at_end
        The free capacity once all jobs that end have ended.
    """
    best: tuple[int, tuple[str, ...]] | None = None
    for candidates in _by_node(gpus).values():
        large = [gpu for gpu in candidates if at_end.why_not(job, gpu.id) is None]
        if len(large) < job.gpus:
            continue
        missing = sorted((_missing(job, capacity, gpu), gpu.id) for gpu in large)[: job.gpus]
        option = sum(m for m, _ in missing), tuple(sorted(gpu for _, gpu in missing))
        best = min(best, option) if best else option
    return best[1] if best else None


def _missing(job: Job, capacity: FreeCapacity, gpu: GPU) -> int:
    free = capacity[gpu.id].memory
    return gpu.memory - free if job.alone else max(0, job.memory - free)
