"""A snapshot, or a workload, as arrays for the native library."""

from collections.abc import Hashable, Sequence
from ctypes import c_double, c_int32, c_int64, c_uint8
from math import inf, isfinite
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from partita_policies.capacity import FreeCapacity
from partita_policies.co_runs import SPREAD, factor, spread
from partita_policies.dqn.structures import (
    GPU_STATE,
    JOBS,
    KIND,
    OUTLOOK,
    NativeProblem,
    NativeState,
    pointer,
)
from partita_policies.forecast import outlook_of
from partita_policies.interference import SHARING_CODES
from partita_policies.types import GPU, Job, Profile, RunningJob, Sharing

__all__ = ["ClusterArrays", "checked"]

_ASKED = attrgetter(
    "memory", "alone", "slots", "clients", "lasting", "duration", "thread_percent",
    "cpu", "host_memory", "host_storage",
)  # fmt: skip
_PLENTY = (1 << 62,) * 3
_MOST_KNOWN = 512
"""Profiles of which the co-runs are known in a decision. An assumption: it bounds the memory for
pairs; of thousands of applications few have run together."""


class ClusterArrays:
    """Jobs by kind, and GPUs by type.

    Parameters
    ----------
    gpus
        The GPUs, in the order of their indices in a decision.
    typical
        Seconds of a job of unknown duration.
    """

    def __init__(self, gpus: Sequence[GPU], sharing: Sharing, *, typical: float) -> None:
        self.gpus, self.sharing, self._typical = gpus, sharing, typical
        self.likes: list[Job | RunningJob] = []
        """One job of each kind."""
        self.queues: list[list[Job]] = []
        """The waiting jobs of each kind, the next last."""
        self._index: dict[tuple[Hashable, ...], int] = {}
        self._types: dict[tuple[Hashable, ...], int] = {}
        self._names = list(dict.fromkeys(gpu.node for gpu in gpus))
        self.gpu_states = np.zeros(len(gpus), GPU_STATE)
        self.since = np.zeros((len(gpus), JOBS))

    def kind(self, job: Job | RunningJob) -> int:
        """Return the kind of a job, and add it if it is new."""
        places = (job.products, job.nodes) if isinstance(job, Job) else ((), frozenset())
        key = (id(job.profile), _ASKED(job), *places)
        known = self._index.get(key)
        if known is None:
            checked(job)
            known = self._index[key] = len(self.likes)
            self.likes.append(job)
            self.queues.append([])
        return known

    def hold(self, capacity: FreeCapacity, time: float) -> None:
        """Add the jobs that hold a part of the GPUs."""
        rows, columns, kinds = [], [], []
        for index, gpu in enumerate(self.gpus):
            for place, job in enumerate([*capacity[gpu.id].holders.values()][:JOBS]):
                rows.append(index)
                columns.append(place)
                kinds.append(self.kind(job))
                if isinstance(job, RunningJob):
                    self.since[index, place] = job.elapsed(time)
        self.gpu_states["jobs"]["kind"][rows, columns] = kinds
        self.gpu_states["count"] = np.bincount(rows, minlength=len(self.gpus))

    def problem(self) -> NativeProblem:
        """Return what stays the same during a decision, for the jobs added so far."""
        place = {name: index for index, name in enumerate(self._names)}
        for row, gpu in zip(self.gpu_states, self.gpus, strict=True):
            row["type"] = self._types.setdefault(_type(gpu), len(self._types))
            row["node"] = place[gpu.node]
        samples = dict(zip(self.gpu_states["type"].tolist(), self.gpus, strict=True))
        rows = self._known_profiles()
        place_of = {id(profile): place for place, profile in enumerate(rows)}
        kinds = [_kind(like, place_of.get(id(like.profile), 0)) for like in self.likes]
        self._kinds = np.array(kinds, KIND)
        self._factors, self._spreads = self._evidence(rows)
        self._outlooks = np.zeros((len(samples), len(self.likes)), OUTLOOK)
        for number, gpu in samples.items():
            for index, like in enumerate(self.likes):
                _describe(self._outlooks[number, index], like, gpu, self._typical)
        self._eligible = self._allowed()
        return NativeProblem(
            len(self.likes),
            len(samples),
            len(self.gpus),
            len(self._names),
            len(rows),
            SHARING_CODES[self.sharing],
            self.sharing is Sharing.EXCLUSIVE,
            self._kinds.ctypes.data,
            self._outlooks.ctypes.data,
            pointer(self._factors, c_double),
            pointer(self._spreads, c_double),
            pointer(self._eligible, c_uint8),
        )

    def _known_profiles(self) -> list[Profile | None]:
        """Return None for all others, and the profiles with co-runs or named in those."""
        all_profiles = (like.profile for like in self.likes if like.profile is not None)
        profiles = {id(profile): profile for profile in all_profiles}.values()
        named = {seen.application for profile in profiles for seen in profile.co_runs}
        known = [p for p in profiles if p.co_runs or p.application in named]
        return [None, *known[: _MOST_KNOWN - 1]]

    def _evidence(
        self, profiles: Sequence[Profile | None]
    ) -> tuple[NDArray[np.float64] | None, NDArray[np.float64] | None]:
        """Return `co_runs.factor` and `co_runs.spread` of each pair of profiles under MPS."""
        if self.sharing is not Sharing.MPS:
            return None, None
        factors = np.ones((len(profiles), len(profiles)))
        spreads = np.full_like(factors, SPREAD)
        places: dict[str, list[int]] = {}
        for place, profile in enumerate(profiles):
            places.setdefault(profile.application if profile else "", []).append(place)
        for row, profile in enumerate(profiles):
            for seen in profile.co_runs if profile else ():
                columns = places.get(seen.application, [])
                factors[row, columns] = factor(profile, seen.application)
                spreads[row, columns] = spread(profile, seen.application)
        return factors if len(profiles) > 1 else None, spreads

    def state(self, capacity: FreeCapacity) -> NativeState:
        """Return the free capacity, the waiting and the running jobs."""
        rows = self.gpu_states
        frees = [capacity[gpu.id] for gpu in self.gpus]
        rows["capacity"] = [gpu.memory for gpu in self.gpus]
        rows["memory"] = [free.memory for free in frees]
        rows["slots"] = [free.slots if len(free.holders) < JOBS else 0 for free in frees]
        rows["clients"] = [free.clients for free in frees]
        rows["alone"] = [free.alone for free in frees]
        self._waiting = np.array([len(queue) for queue in self.queues], np.int32)
        self._host = None
        if capacity.hosts is not None:
            left = [capacity.hosts.left(name) or _PLENTY for name in self._names]
            self._host = np.array(left, np.int64)
        lasting = np.array([like.lasting for like in self.likes], bool)
        there = np.arange(JOBS) < rows["count"][:, None]
        return NativeState(
            rows.ctypes.data,
            pointer(self._waiting, c_int32),
            pointer(self._host, c_int64),
            int(self._waiting.sum()),
            int((there & ~lasting[rows["jobs"]["kind"]]).sum()),
            0.0,
            0.0,
            0.0,
        )

    def _allowed(self) -> NDArray[np.uint8] | None:
        limits = [like.nodes if isinstance(like, Job) else frozenset() for like in self.likes]
        if not any(limits):
            return None
        rows = [[not limit or name in limit for name in self._names] for limit in limits]
        return np.array(rows, np.uint8)


def checked(job: Job | RunningJob) -> None:
    """Raise an error if a duration or a profile is not made of numbers of at least 0."""
    if job.duration is not None and not isfinite(job.duration):
        raise ValueError(f"a duration of {job.duration} s is no number to plan with")
    profile: Profile | None = job.profile
    if profile is None:
        return
    if not (isfinite(profile.duration) and profile.duration >= 0):
        raise ValueError(f"a duration of {profile.duration} s is no number to plan with")
    amounts = [(s.gpu, s.core, s.pcie, s.memory) for s in profile.steps]
    if not all(0 <= amount < inf for step in amounts for amount in step):
        raise ValueError(f"the profile of {profile.application!r} has steps that are no amounts")


def _kind(like: Job | RunningJob, row: int) -> tuple[object, ...]:
    host = (like.cpu, like.host_memory, like.host_storage)
    return (like.memory, host, like.slots, like.clients, like.alone, like.lasting, row, 0)


def _type(gpu: GPU) -> tuple[Hashable, ...]:
    return (gpu.memory, gpu.product, gpu.pcie_bandwidth, gpu.sm_partitions)


def _describe(row: np.void, like: Job | RunningJob, gpu: GPU, typical: float) -> None:
    outlook = outlook_of(like, gpu, typical)
    seconds = [1.0 if like.lasting else phase.seconds for phase in outlook.phases]
    count = len(seconds)
    row["phase"]["load"][:count] = [tuple(phase.load) for phase in outlook.phases]
    row["phase"]["seconds"][:count] = seconds
    row["mean"] = tuple(outlook.mean)
    row["duration"] = sum(seconds)
    row["phases"] = count
    products = like.products if isinstance(like, Job) else ()
    row["allowed"] = not products or gpu.product in products
