"""What waiting and running jobs ask for, kept from one decision to the next."""

from collections.abc import Callable, Collection, Hashable
from math import inf
from operator import attrgetter
from typing import Any, TypeVar

from partita_policies.forecast import check_duration, known_duration
from partita_policies.incremental import Interned
from partita_policies.interference import amounts_of
from partita_policies.types import GPU, Job, Profile, RunningJob

__all__ = ["CachedRequest", "RequestCache", "gpu_type"]

T = TypeVar("T")
_ASKED = attrgetter(
    "memory", "alone", "slots", "clients", "lasting", "duration", "thread_percent",
    "cpu", "host_memory", "host_storage",
)  # fmt: skip
gpu_type: Callable[[GPU], Hashable] = attrgetter(
    "memory", "product", "pcie_bandwidth", "sm_partitions", "max_jobs", "max_clients"
)
"""Returns a key that is equal for GPUs that take the same jobs and on which they run alike."""


class CachedRequest:
    """What jobs that are alike ask for of one GPU, and what follows from it.

    Parameters
    ----------
    like
        One of the jobs.
    """

    def __init__(self, like: Job | RunningJob) -> None:
        self.like = like
        self._unknown = known_duration(like) is None
        self._known: dict[Hashable, Any] = {}

    def once(self, name: str, compute: Callable[[Job | RunningJob], T]) -> T:
        """Return what follows from the request alone; it is computed once."""
        found: T | None = self._known.get(name)
        if found is None:
            found = self._known[name] = compute(self.like)
        return found

    def on(
        self,
        gpu: GPU,
        typical: float,
        name: str,
        compute: Callable[[Job | RunningJob, GPU, float], T],
    ) -> T:
        """Return what follows from the request on a type of GPU; it is computed once for each.

        Parameters
        ----------
        typical
            Seconds of a job of unknown duration.
        """
        key = _keys_on(gpu, typical, name)[self._unknown]
        found: T | None = self._known.get(key)
        if found is None:
            found = self._known[key] = compute(self.like, gpu, typical)
        return found

    @staticmethod
    def all_on(
        requests: Collection["CachedRequest"],
        gpu: GPU,
        typical: float,
        name: str,
        compute: Callable[[Job | RunningJob, GPU, float], T],
    ) -> list[T]:
        """Return what follows from many requests, which is faster than `on` of each."""
        keys = _keys_on(gpu, typical, name)
        found: list[T | None] = [each._known.get(keys[each._unknown]) for each in requests]  # noqa: SLF001
        return [
            each.on(gpu, typical, name, compute) if value is None else value
            for each, value in zip(requests, found, strict=True)
        ]


class RequestCache(Interned[Job | RunningJob, CachedRequest]):
    """The requests of the jobs of the last decision; jobs that are alike have the same one.

    `of` raises a `ValueError` if a duration or a profile is not made of numbers of at least 0.
    """

    def __init__(self) -> None:
        super().__init__(_key, CachedRequest)


def _keys_on(gpu: GPU, typical: float, name: str) -> tuple[Hashable, Hashable]:
    """Return the keys of what follows from a request of a known and of an unknown duration."""
    kind = gpu_type(gpu)
    return (name, kind, None), (name, kind, typical)


def _key(job: Job | RunningJob) -> Hashable:
    _check(job)
    places = (job.products, job.nodes) if isinstance(job, Job) else ((), frozenset())
    return (id(job.profile), _ASKED(job), *places)


def _check(job: Job | RunningJob) -> None:
    if job.duration is not None:
        check_duration(job.duration)
    profile: Profile | None = job.profile
    if profile is None:
        return
    check_duration(profile.duration)
    if not all(0 <= amount < inf for step in profile.steps for amount in amounts_of(step)):
        raise ValueError(f"the profile of {profile.application!r} has steps that are no amounts")
