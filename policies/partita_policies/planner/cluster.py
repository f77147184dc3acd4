"""A snapshot, or a workload, as arrays for the native library."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from partita_policies.capacity import FreeCapacity
from partita_policies.co_runs import SPREAD, factor, spread
from partita_policies.forecast import outlook_of
from partita_policies.interference import SHARING_CODES, Load
from partita_policies.native.structures import KIND, asked
from partita_policies.planner.structures import (
    GPU_STATE,
    JOBS,
    OUTLOOK,
    PHASES,
    NativeProblem,
    NativeState,
    address,
)
from partita_policies.requests import CachedRequest, RequestCache, gpu_type
from partita_policies.types import GPU, Job, Profile, RunningJob, Sharing

__all__ = ["ClusterArrays"]

_PLENTY = (1 << 62,) * 3
_UNUSED = (Load(*[0.0] * len(Load._fields)), 0.0)
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
    requests
        What is known from the last decision.
    """

    def __init__(
        self,
        gpus: Sequence[GPU],
        sharing: Sharing,
        *,
        typical: float,
        requests: RequestCache | None = None,
    ) -> None:
        self.gpus, self.sharing, self._typical = gpus, sharing, typical
        self._request_of = requests or RequestCache()
        self.queues: list[list[Job]] = []
        """The waiting jobs of each kind, the next last."""
        self._kind_of: dict[CachedRequest, int] = {}
        self._names = list(dict.fromkeys(gpu.node for gpu in gpus))
        self.gpu_states = np.zeros(len(gpus), GPU_STATE)
        self.since = np.zeros((len(gpus), JOBS))

    def kind(self, job: Job | RunningJob) -> int:
        """Return the kind of a job, and add it if it is new."""
        request = self._request_of.of(job)
        known = self._kind_of.get(request)
        if known is None:
            known = self._kind_of[request] = len(self._kind_of)
            self.queues.append([])
        return known

    @property
    def _likes(self) -> list[Job | RunningJob]:
        """One job of each kind."""
        return [request.like for request in self._kind_of]

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
        self.gpu_states["free"]["jobs"] = np.bincount(rows, minlength=len(self.gpus))

    def problem(self) -> NativeProblem:
        """Return what stays the same during a decision, for the jobs added so far."""
        place = {name: index for index, name in enumerate(self._names)}
        samples = {gpu_type(gpu): gpu for gpu in self.gpus}
        types = {of: number for number, of in enumerate(samples)}
        self.gpu_states["type"] = [types[gpu_type(gpu)] for gpu in self.gpus]
        self.gpu_states["node"] = [place[gpu.node] for gpu in self.gpus]
        profiles = self._known_profiles()
        self._kinds = _table((each.once("kind", _kind) for each in self._kind_of), KIND)
        if len(profiles) > 1:
            place_of = {id(profile): place for place, profile in enumerate(profiles)}
            self._kinds["application"] = [place_of.get(id(j.profile), 0) for j in self._likes]
        self._factors, self._spreads = self._evidence(profiles)
        self._outlooks = _table(
            (
                outlook
                for gpu in samples.values()
                for outlook in CachedRequest.all_on(
                    self._kind_of, gpu, self._typical, "outlook", _outlook
                )
            ),
            OUTLOOK,
        )
        self._eligible = self._allowed()
        return NativeProblem(
            len(self._kind_of),
            len(samples),
            len(self.gpus),
            len(self._names),
            len(profiles),
            SHARING_CODES[self.sharing],
            self._kinds.ctypes.data,
            self._outlooks.ctypes.data,
            address(self._factors),
            address(self._spreads),
            address(self._eligible),
            None,
        )

    def _known_profiles(self) -> list[Profile | None]:
        """Return None for all others, and the profiles with co-runs or named in those."""
        all_profiles = (like.profile for like in self._likes if like.profile is not None)
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
        rows, left = self.gpu_states, self.gpu_states["free"]
        frees = [capacity[gpu.id] for gpu in self.gpus]
        left["capacity"] = [gpu.memory for gpu in self.gpus]
        left["memory"] = [free.memory for free in frees]
        left["slots"] = [free.slots if len(free.holders) < JOBS else 0 for free in frees]
        left["clients"] = [free.clients for free in frees]
        left["alone"] = [free.alone for free in frees]
        self._waiting = np.array([len(queue) for queue in self.queues], np.int32)
        self._host = None
        if capacity.hosts is not None:
            hosts = [capacity.hosts.left(name) or _PLENTY for name in self._names]
            self._host = np.array(hosts, np.int64)
        lasting = np.array([like.lasting for like in self._likes], bool)
        there = np.arange(JOBS) < left["jobs"][:, None]
        return NativeState(
            rows.ctypes.data,
            address(self._waiting),
            address(self._host),
            int(self._waiting.sum()),
            int((there & ~lasting[rows["jobs"]["kind"]]).sum()),
            0.0,
            0.0,
            0.0,
        )

    def _allowed(self) -> NDArray[np.uint8] | None:
        limits = [like.nodes if isinstance(like, Job) else frozenset() for like in self._likes]
        if not any(limits):
            return None
        rows = [[not limit or name in limit for name in self._names] for limit in limits]
        return np.array(rows, np.uint8)


def _table(rows: Iterable[bytes], of: np.dtype[np.void]) -> NDArray[np.void]:
    return np.frombuffer(bytearray(b"".join(rows)), of)


def _kind(like: Job | RunningJob) -> bytes:
    return np.array(asked(like), KIND).tobytes()


def _outlook(like: Job | RunningJob, gpu: GPU, typical: float) -> bytes:
    outlook = outlook_of(like, gpu, typical)
    seconds = [1.0 if like.lasting else phase.seconds for phase in outlook.phases]
    phases = [(phase.load, of) for phase, of in zip(outlook.phases, seconds, strict=True)]
    unused = [_UNUSED] * (PHASES - len(phases))
    allowed = not isinstance(like, Job) or not like.products or gpu.product in like.products
    row = ([*phases, *unused], outlook.mean, sum(seconds), len(phases), allowed)
    return np.array(row, OUTLOOK).tobytes()
