"""Requests that are known to fit no GPU, so that thousands of such jobs are not searched for."""

from collections.abc import Callable
from operator import attrgetter

from partita_policies.types import Job

__all__ = ["Misfits", "shape_of", "size_of"]

_Shape = tuple[bool, int, int, int, tuple[str, ...], frozenset[str]]
_Size = tuple[int, int, int, int]
shape_of: Callable[[Job], _Shape] = attrgetter(
    "alone", "gpus", "slots", "clients", "products", "nodes"
)
size_of: Callable[[Job], _Size] = attrgetter("memory", "cpu", "host_memory", "host_storage")
_REMEMBERED = 16
"""Maximum number of sizes stored per shape of job that fit no GPU."""


class Misfits:
    """The smallest sizes of each shape of job that fit no GPU."""

    def __init__(self) -> None:
        self._known: dict[_Shape, list[_Size]] = {}

    def include(self, job: Job) -> bool:
        """Return whether a job is of a known size or larger."""
        known = self._known.get(shape_of(job))
        if known is None:
            return False
        memory, cpu, host_memory, host_storage = size_of(job)
        for least in known:  # far faster than `any` with a generator, and called for every job
            if (
                memory >= least[0]
                and cpu >= least[1]
                and host_memory >= least[2]
                and host_storage >= least[3]
            ):
                return True
        return False

    def add(self, job: Job) -> None:
        """Store the size of a job, and remove larger ones."""
        shape, least = shape_of(job), size_of(job)
        smaller = [other for other in self._known.get(shape, ()) if _is_below(other, least)]
        self._known[shape] = [least, *smaller[: _REMEMBERED - 1]]

    def clear(self) -> None:
        """Forget all sizes: something was released."""
        self._known.clear()


def _is_below(one: _Size, other: _Size) -> bool:
    """Return whether a size is less than another in any of its amounts."""
    return one[0] < other[0] or one[1] < other[1] or one[2] < other[2] or one[3] < other[3]
