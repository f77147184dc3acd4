"""The makespan of the same jobs with one job per GPU. Pure."""

import heapq
import math
from collections.abc import Iterable

from partita_policies.types import Sharing
from partita_testcluster.nodes.gpu import SimulatedGPU, Work

__all__ = ["one_job_per_gpu"]


def one_job_per_gpu(jobs: Iterable[tuple[Work, int]], *, gpus: int, memory: int) -> float:
    """Return the makespan of jobs that each have a whole GPU while they run, in seconds.

    In the given order, each job starts on the GPU that becomes free first, without a pause between
    two jobs. Only the size of the GPU limits its memory. A job that still runs out of memory
    restarts as often as permitted, and this time counts.

    Parameters
    ----------
    jobs
        Work of each job, and its maximum number of restarts after running out of memory.
    gpus
        Number of GPUs.
    memory
        Bytes of each GPU.
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
    (ended,) = gpu.start(work) or gpu.advance(math.inf)
    return ended.time * (1 + retries) if ended.error else ended.time
