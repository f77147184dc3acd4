"""Memory requests on a shared GPU: which ones succeed, and which jobs are evicted for them.

Below its guarantee a job gets every byte. Between its guarantee and its ceiling it borrows memory
that is free. When a request within a guarantee finds the GPU full, MPS evicts jobs that borrow. A
job that borrows cannot evict others. Source: "Soft and Hard Limits" and "MPS Pressure Handling and
Eviction", https://docs.nvidia.com/deploy/mps/mpsv3-memory-partitioning.html. The simulator and the
simulated nodes use this model.
"""

from collections.abc import Iterable
from typing import Protocol, TypeVar

__all__ = ["MemoryUser", "evicted_for"]


class MemoryUser(Protocol):
    """A job on a GPU. All amounts are in bytes."""

    @property
    def memory(self) -> int:
        """Memory in use."""
        ...

    @property
    def guarantee(self) -> int:
        """Memory up to which it is not evicted and evicts others; 0 without a guarantee."""
        ...

    @property
    def ceiling(self) -> int:
        """Memory above which every request fails."""
        ...


User = TypeVar("User", bound=MemoryUser)


def evicted_for(
    wanted: int, user: MemoryUser, others: Iterable[User], capacity: int
) -> list[User] | None:
    """Return the jobs that are evicted for a memory request; None if the request fails.

    The job that borrows most is evicted first, so that few jobs are. This is an assumption: NVIDIA
    says only that the MPS server picks a job above its soft limit.

    Parameters
    ----------
    wanted
        Bytes that the job would use in all.
    user
        The job.
    others
        The other jobs on the GPU.
    capacity
        Bytes of the GPU.
    """
    if wanted > user.ceiling:
        return None
    there = list(others)
    missing = wanted + sum([other.memory for other in there]) - capacity
    if missing <= 0:
        return []
    if wanted > user.guarantee:
        return None
    evicted = []
    for other in sorted(there, key=_borrowed, reverse=True):
        if missing <= 0 or _borrowed(other) <= 0:
            break
        evicted.append(other)
        missing -= other.memory
    return evicted if missing <= 0 else None


def _borrowed(user: MemoryUser) -> int:
    return user.memory - user.guarantee
