"""Placement of lasting jobs: services and notebooks, which do not end by themselves.

They are placed before a policy is asked, so policies see them only as running jobs. A lasting job
gets the GPU on which it and the jobs there are predicted to slow each other down least. Among GPUs
that are about as good, the one with the least free memory is chosen, so that large jobs still find
room elsewhere.

`partita_policies.interference` predicts the slowdowns from the mean load of each profile. The
operator and the simulator use the same function.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from partita_policies.capacity import FreeCapacity, FreeGPU
from partita_policies.forecast import slowdowns_together
from partita_policies.types import GPU, Job, Node, RunningJob, Sharing

__all__ = [
    "SERVICES_PERCENT",
    "best_gpu",
    "only_lasting",
    "without_lasting",
]

SERVICES_PERCENT = 70
"""Default limit of what lasting jobs hold together, in percent of each resource of all GPUs. An
assumption: it leaves a part of every partition to jobs that end."""
_TOLERANCE = 0.05
"""Predicted slowdowns that differ by less count as equal. An assumption: profiles are not more
accurate."""
_COMPARED = 64
"""Maximum number of GPUs for which slowdowns are predicted, evenly chosen by their free memory. It
bounds the time of one placement to a few milliseconds."""


def best_gpu(job: Job, capacity: FreeCapacity, gpus: Iterable[GPU], sharing: Sharing) -> str | None:
    """Choose the GPU for a lasting job by predicted slowdown and packing.

    Parameters
    ----------
    job
        A job on one GPU.
    gpus
        The GPUs that may be chosen.

    Returns
    -------
    str or None
        Id of the GPU; None if the job fits none of them now.
    """
    fitting = [capacity[gpu.id] for gpu in gpus if capacity.why_not(job, gpu.id) is None]
    fitting.sort(key=lambda free: (free.memory, free.gpu.id))
    compared = fitting[:: -(-len(fitting) // _COMPARED) or 1]
    slow = [_slowdown(job, free, sharing) for free in compared]
    if not slow:
        return None
    most = min(slow) + _TOLERANCE
    return next(free.gpu.id for free, much in zip(compared, slow, strict=True) if much <= most)


def _slowdown(job: Job, free: FreeGPU, sharing: Sharing) -> float:
    """Return the largest predicted slowdown on a GPU with the job, of any job there."""
    jobs = [*free.holders.values(), job]
    return max(slower for slower, _ in slowdowns_together(jobs, free.gpu, sharing))


def only_lasting(gpu: GPU) -> GPU:
    """Return a GPU as it is once all jobs that end have ended."""
    return replace(gpu, running=tuple(one for one in gpu.running if one.lasting))


def without_lasting(gpus: Iterable[GPU], nodes: Iterable[Node]) -> tuple[list[GPU], list[Node]]:
    """Return the GPUs and nodes as they are for jobs that end.

    What lasting jobs hold is subtracted from each GPU and node, and they are not listed as running
    jobs. A GPU on which a lasting job is alone is left out.
    """
    taken: dict[tuple[str, str], RunningJob] = {}
    left = []
    for gpu in gpus:
        lasting = [one for one in gpu.running if one.lasting]
        taken |= {(gpu.node, one.job): one for one in lasting}
        if not any(one.alone for one in lasting):
            left.append(_reduced(gpu, lasting) if lasting else gpu)
    left_nodes = []
    for node in nodes:
        there = [one for (name, _), one in taken.items() if name == node.id]
        left_nodes.append(
            replace(
                node,
                cpu=max(0, node.cpu - sum(one.cpu for one in there)),
                memory=max(0, node.memory - sum(one.host_memory for one in there)),
                storage=max(0, node.storage - sum(one.host_storage for one in there)),
            )
        )
    return left, left_nodes


def _reduced(gpu: GPU, lasting: Sequence[RunningJob]) -> GPU:
    return replace(
        gpu,
        memory=max(0, gpu.memory - sum(one.memory for one in lasting)),
        max_jobs=gpu.max_jobs - sum(one.slots for one in lasting),
        max_clients=gpu.max_clients - sum(one.clients for one in lasting),
        running=tuple(one for one in gpu.running if not one.lasting),
    )
