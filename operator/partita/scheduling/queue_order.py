"""The order in which waiting jobs are offered to the policy."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from partita_policies.amounts import GPUAmounts, capacity_of
from partita_policies.types import GPU, Job

__all__ = ["age_order", "fair_order"]

_Level = tuple[int, bool, bool]


def fair_order(
    jobs: Iterable[Job],
    *,
    held: Mapping[str, GPUAmounts],
    gpus: Iterable[GPU],
    weights: Mapping[str, int],
    past: Mapping[str, float] = MappingProxyType({}),
) -> list[Job]:
    """Sort by priority, lasting jobs first, then reclaimed ones, then fairly, then by age.

    A service comes before the other jobs of its priority: its users wait for it now.

    A job that was evicted while it borrowed memory has lost its work to another job. So it comes
    before the other jobs of its priority, whatever its namespace has allocated.

    Each namespace has its own queue per priority, oldest job first. A job's rank is the dominant
    share (`partita_policies.amounts`) of what its namespace has allocated and of the jobs before it
    in this queue, divided by the namespace's weight. The lowest rank comes first: start-time fair
    queueing (Goyal, Vin and Cheng, SIGCOMM 1996) with the dominant share as the service. So ten
    thousand jobs of one tenant do not delay the first job of another, and neither do few jobs with
    many processes. A namespace's rank begins with its share of the past, where that counts.

    Parameters
    ----------
    jobs
        The waiting jobs.
    held
        What each namespace has allocated in the partition.
    gpus
        The GPUs of the partition. A job that is alone for a reason other than faults counts with
        the largest of them.
    weights
        Weight of each namespace; 1 for a namespace that is not listed.
    past
        The mean dominant share that each namespace had lately (`fairness.halfLife`).
    """
    gpus = list(gpus)
    whole_gpu = max((gpu.memory for gpu in gpus), default=1)
    lines = sorted(jobs, key=age_order)
    start: dict[tuple[_Level, str], tuple[int, int, int]] = {}
    of_memory, of_places, of_clients = (1 / (amount or 1) for amount in capacity_of(gpus))
    turns = []
    for place, job in enumerate(lines):
        level = _level(job)
        line = (level, job.namespace)
        memory, places, clients = start.get(line) or held.get(job.namespace, GPUAmounts())
        turn = max(memory * of_memory, places * of_places, clients * of_clients)
        turn += past.get(job.namespace, 0.0)
        asked = whole_gpu if job.alone and not job.alone_by_faults else job.memory
        start[line] = (
            memory + asked * job.gpus,
            places + job.slots * job.gpus,
            clients + job.clients * job.gpus,
        )
        turns.append((level, turn / weights.get(job.namespace, 1), place, job))
    turns.sort()  # no two have the same place, so it never compares jobs
    return [entry[3] for entry in turns]


def age_order(job: Job) -> tuple[object, ...]:
    """Return the key by which the waiting jobs of one namespace are sorted."""
    return *_level(job), job.submitted, job.name


def _level(job: Job) -> _Level:
    return -job.priority, not job.lasting, not job.reclaimed
