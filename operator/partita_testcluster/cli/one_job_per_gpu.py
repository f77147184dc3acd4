"""The makespan of the same jobs with one job per GPU. Pure."""

import heapq
import math
from collections.abc import Iterable

from partita_policies.types import Sharing
from partita_testcluster.nodes.gpu import SimulatedGPU, Work

__all__ = ["one_job_per_gpu"]


def one_job_per_gpu(jobs: Iterable[tuple[Work, int]], *, gpus: int, memory: int) -> float:
    """Return the makespan of jobs that each have a whole GPU while they run, in seconds.

    In the order given, each job takes the GPU that is free first. It runs as fast as alone, and
    nothing is lost between two jobs. Nothing but the GPU's size limits its memory; one that even
    so runs out of it is started again as often as it may be, and the time counts.

    Parameters
    ----------
    jobs
        What each does, and how often it is started again when it runs out of memory.
    gpus
        How many GPUs there are.
    memory
        Bytes of each.
    """
    free = [0.0] * gpus
    end = 0.0
    for work, retries in jobs:
        began = heapq.heappop(free)
        done = began + _time_alone(work, retries, memory)
        heapq.heappush(free, done)
        end = max(end, done)
    return end


def _time_alone(work: Work, retries: int, memory: int) -> float:
    gpu = SimulatedGPU(memory, Sharing.EXCLUSIVE)
    ended = gpu.start(work) or gpu.advance(math.inf)[0]
    return ended.time * (1 + retries) if ended.error else ended.time
