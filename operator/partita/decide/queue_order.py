"""The order in which waiting jobs are offered to the policy."""

from collections.abc import Iterable, Mapping

from partita_policies.types import Job

__all__ = ["fair_order"]


def fair_order(
    jobs: Iterable[Job], *, held: Mapping[str, int], weights: Mapping[str, int], whole_gpu: int = 1
) -> list[Job]:
    """Sort by priority, then fairly between namespaces, then by age.

    Each namespace's jobs stand in a line of their own, oldest first. A job's turn comes when
    what its namespace holds and what stands before it in the line, divided by the namespace's
    weight, is least: start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996) with GPU
    memory as the service. So ten thousand jobs of one tenant do not delay another's first.

    Parameters
    ----------
    jobs
        The waiting jobs.
    held
        Bytes that each namespace has allocated in the partition.
    weights
        Weight of each namespace; 1 for one that is not there.
    whole_gpu
        Bytes that a job counts for which has its GPUs to itself for another cause than faults.
    """
    lines = sorted(jobs, key=lambda job: (-job.priority, job.submitted, job.name))
    start: dict[tuple[int, str], float] = {}
    turns = []
    for place, job in enumerate(lines):
        line = (job.priority, job.namespace)
        weight = weights.get(job.namespace, 1)
        turn = start.get(line)
        if turn is None:
            turn = held.get(job.namespace, 0) / weight
        memory = whole_gpu if job.alone and not job.alone_by_faults else job.memory
        start[line] = turn + memory * job.gpus / weight
        turns.append((-job.priority, turn, place, job))
    turns.sort(key=lambda entry: entry[:3])
    return [entry[3] for entry in turns]
