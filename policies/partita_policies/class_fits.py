"""Arrays over all classes of waiting jobs: which of them fit a GPU.

`partita_policies.gpu_index` answers the opposite question, which GPUs a job fits.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from partita_policies.capacity import FreeCapacity
from partita_policies.misfits import shape_of
from partita_policies.types import GPU, Job

__all__ = ["ClassFits"]

_HOST: Callable[[Job], tuple[int, int, int]] = attrgetter("cpu", "host_memory", "host_storage")
_NOTHING = -(2**62)
"""Less than is free on any node, however much is allocated: 0 always fits."""
_FRONT = 512
"""Classes that are looked at before all others: mostly enough of them fit."""


class ClassFits:
    """Finds the classes of jobs that fit a GPU during one decision.

    Parameters
    ----------
    jobs
        One waiting job of each class.
    capacity
        The free capacity, which may change.
    """

    def __init__(self, jobs: Sequence[Job], capacity: FreeCapacity) -> None:
        self._capacity = capacity
        shapes = [*map(shape_of, jobs)]
        samples = dict(zip(shapes, jobs, strict=True))
        numbers = {shape: number for number, shape in enumerate(samples)}
        self._shape = np.array([numbers[shape] for shape in shapes], np.intp)
        self._memory = np.array([job.memory for job in jobs], np.int64)
        wanted = chain.from_iterable(map(_HOST, jobs))
        host = np.fromiter(wanted, np.int64, 3 * len(jobs)).reshape(-1, 3).T
        self._host = np.where(host == 0, _NOTHING, host)
        self._samples = [
            replace(job, cpu=0, host_memory=0, host_storage=0) for job in samples.values()
        ]

    def first(self, gpu: GPU, among: NDArray[np.bool_], most: int) -> NDArray[np.intp]:
        """Return the first classes that fit a GPU and, if they need several, others of its node.

        Parameters
        ----------
        among
            Whether a class may be returned.
        most
            Number of classes.
        """
        hosts = self._capacity.hosts
        left = hosts.left(gpu.node) if hosts is not None else None
        reach = np.array([self._capacity.reach(job, gpu.id) for job in self._samples], np.int64)
        start = int(among.argmax())
        found = np.zeros(0, np.intp)
        for end in (start + _FRONT, len(among)) if reach.max() >= 0 else ():
            part = slice(start, end)
            fits = among[part] & (self._memory[part] <= reach.take(self._shape[part]))
            if left is not None:
                for wanted, free in zip(self._host, left, strict=True):
                    fits &= wanted[part] <= free
            found = start + np.flatnonzero(fits)[:most]
            if len(found) == most:
                break
        return found
