"""Placement of lasting jobs: services and notebooks, which do not end by themselves.

They are placed before a policy is asked, so policies see them only as running jobs. A lasting job
gets the GPU on which it and the jobs there are predicted to slow each other down least. Among GPUs
that are about as good, the one with the least free memory is chosen, so that large jobs still find
room elsewhere.

`partita_policies.interference` predicts the slowdowns from the mean load of each profile. The
operator and the simulator use the same function.
"""

from collections.abc import Iterable
from dataclasses import replace

from partita_policies.capacity import FreeCapacity, FreeGPU
from partita_policies.forecast import slowdowns_together
from partita_policies.types import GPU, Job, Sharing

__all__ = ["SERVICES_PERCENT", "best_gpu", "only_lasting"]

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
