"""GPUs held for a job that was passed over too often.

A policy may start jobs from behind a waiting job, but only in so many cycles. Then the job has a
claim: it starts as soon as it fits, and for one such job at a time GPUs are held on which nothing
of the same or a lower priority starts until it does.

What is guaranteed (docs/priorities.md; tests/decide/test_starvation.py):

- The order of priorities is strict. A job may wait for ever while jobs of a higher effective
  priority come; no GPU is held against one of them that could start.
- From when no job of a higher priority waits or comes, a job starts within
  ``(max_bypasses + a + 1) * D + m * (n + 1) * D``, where jobs run at most ``D``, ``a`` jobs are
  older, ``n`` of these of its namespace, and ``m`` namespaces have jobs: namespaces take turns to
  have GPUs held, each for its oldest job.
- Nothing is guaranteed to a job that is suspended, that its namespace's quota keeps waiting, for
  which no ready GPU is large enough, or under a policy that starts nothing on idle GPUs.

One reservation at a time is EASY backfilling (Lifka, JSSPP 1995). Unlike EASY, nothing is started
on held GPUs because it is expected to end in time: run times on a shared GPU depend on the
neighbours, and estimates are poor (Mu'alem and Feitelson, IEEE TPDS 12(6), 2001).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

from partita_policies.capacity import FreeCapacity
from partita_policies.types import GPU, Job, Node

__all__ = ["Aging", "fit_among", "gpus_to_hold"]


class Aging:
    """Counts for each waiting job the cycles that passed it over.

    Parameters
    ----------
    bypasses
        What was counted before, by UID, as far as it is written down.
    """

    def __init__(self, bypasses: Mapping[str, int] | None = None) -> None:
        self.bypasses = dict(bypasses or {})
        self._reserved = ""
        self._turns: dict[str, int] = {}

    def note(self, order: Sequence[Job], placed: Collection[str]) -> None:
        """Count a cycle: jobs before the last one placed that were not placed themselves."""
        if not placed:
            return
        last = max((i for i, job in enumerate(order) if job.id in placed), default=-1)
        for job in order[:last]:
            if job.id not in placed:
                self.bypasses[job.id] = self.bypasses.get(job.id, 0) + 1
        for job_id in placed:
            self.bypasses.pop(job_id, None)

    def aged(self, order: Iterable[Job], limit: int) -> list[Job]:
        """Return the jobs that may be passed over no more, in queue order."""
        if not self.bypasses:
            return []
        return [job for job in order if self.bypasses.get(job.id, 0) >= limit]

    def in_turn(self, aged: Iterable[Job]) -> list[Job]:
        """Sort aged jobs by whose turn it is to have GPUs held for it.

        The highest priority comes first. Among equals a job keeps its turn; then namespaces take
        turns, each with its oldest job.
        """

        def turn(job: Job) -> tuple[int, bool, int, float, str]:
            had = self._turns.get(job.namespace, 0)
            return -job.priority, job.id != self._reserved, had, job.submitted, job.name

        return sorted(aged, key=turn)

    def reserve(self, job: Job) -> None:
        """Note that it is a job's turn."""
        if job.id != self._reserved:
            self._reserved = job.id
            self._turns[job.namespace] = max(self._turns.values(), default=0) + 1

    def keep_only(self, waiting: Collection[str]) -> None:
        """Forget jobs that wait no longer."""
        for job_id in self.bypasses.keys() - waiting:
            del self.bypasses[job_id]


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
    job: Job,
    capacity: FreeCapacity,
    gpus: Iterable[GPU],
    nodes: Mapping[str, Node] = MappingProxyType({}),
) -> tuple[str, ...] | None:
    """Choose among these the GPUs on which a job will fit soonest; None if it fits on none.

    Those with the least memory still to be released come first.

    Parameters
    ----------
    nodes
        What is allocatable on nodes. A node that is not listed is not checked.
    """
    best: tuple[int, tuple[str, ...]] | None = None
    for candidates in _by_node(gpus).values():
        large = [g for g in candidates if _could_take(job, g) and _suffices(job, g, nodes)]
        if len(large) < job.gpus:
            continue
        missing = sorted((_missing(job, capacity, gpu), gpu.id) for gpu in large)[: job.gpus]
        option = sum(m for m, _ in missing), tuple(sorted(gpu for _, gpu in missing))
        best = min(best, option) if best else option
    return best[1] if best else None


def _could_take(job: Job, gpu: GPU) -> bool:
    return gpu.memory >= job.memory and gpu.max_jobs >= job.slots and gpu.max_clients >= job.clients


def _suffices(job: Job, gpu: GPU, nodes: Mapping[str, Node]) -> bool:
    """Tell whether a job may run on the GPU's node once the jobs there have ended."""
    if job.nodes and gpu.node not in job.nodes:
        return False
    node = nodes.get(gpu.node)
    return node is None or (
        job.cpu <= node.cpu and job.host_memory <= node.memory and job.host_storage <= node.storage
    )


def _missing(job: Job, capacity: FreeCapacity, gpu: GPU) -> int:
    free = capacity[gpu.id].memory
    return gpu.memory - free if job.alone else max(0, job.memory - free)
