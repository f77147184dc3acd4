"""What jobs ask of a GPU over time, as arrays.

A job with a profile asks for what was measured. One without is taken to keep the GPU as busy as
its threads allow from beginning to end, the safe assumption: nothing is put beside it lightly.
"""

from dataclasses import dataclass
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from partita_policies.interference import SM_SATURATION
from partita_policies.types import Booking, Job, Profile

__all__ = [
    "BUSY",
    "MEMORY",
    "PCIE",
    "RESOURCES",
    "SM",
    "STEPS",
    "Catalogue",
    "Demand",
    "Floats",
    "Integers",
]

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]

STEPS = 16
"""Equal parts into which every profile is divided."""
RESOURCES = 4
BUSY, SM, PCIE, MEMORY = range(RESOURCES)
"""Columns: share of the time a kernel runs, share of the SMs, PCIe bytes per second, GiB. The four
resources of the DqnGPU study, its GPU cores as `interference.load_of` reads them."""

UNKNOWN_DURATION = 600.0
"""Seconds taken for a job of unknown duration where no other job's is known. An assumption."""
_GIB = float(1 << 30)
_KEPT_PROFILES = 16384

_Table = tuple[Floats, Floats]


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """What the jobs of one kind ask for when they have a GPU to themselves."""

    duration: float | None
    """Seconds; None when unknown."""
    limit: float
    """Share of the SMs that it may use."""
    steps: Floats
    """(STEPS, RESOURCES): what each part of it uses."""
    rest: Floats
    """(STEPS, RESOURCES): the mean of each part and those after it."""


class Catalogue:
    """The demands of the jobs met in one decision, each kind of them once.

    Parameters
    ----------
    profiles
        Divided profiles by identity, kept from one decision to the next: a profile never
        changes, and dividing it takes longer than all else.
    """

    def __init__(self, profiles: dict[int, tuple[Profile, _Table]]) -> None:
        if len(profiles) > _KEPT_PROFILES:
            profiles.clear()
        self._profiles = profiles
        self._index: dict[tuple[int, float | None, int, int], int] = {}
        self.demands: list[Demand] = []
        self._arrays: tuple[Floats, Floats, Floats, Floats] | None = None

    def index(self, job: Job | Booking) -> int:
        """Return the place in `demands` of what a job asks for."""
        profile = job.profile
        unmeasured = profile is None or not profile.steps
        duration = job.duration
        if duration is None and profile is not None:
            duration = profile.duration
        key = (id(profile), duration, job.thread_percent, job.memory if unmeasured else -1)
        known = self._index.get(key)
        if known is None:
            known = self._index[key] = len(self.demands)
            self.demands.append(self._demand(job, profile, duration))
        return known

    def arrays(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Return durations (N), limits (N), steps and rests (N, STEPS, RESOURCES)."""
        if self._arrays is not None and len(self._arrays[0]) == len(self.demands):
            return self._arrays
        known = [demand.duration for demand in self.demands if demand.duration]
        typical = sum(known) / len(known) if known else UNKNOWN_DURATION
        durations = [max(demand.duration or typical, 1.0) for demand in self.demands]
        self._arrays = (
            np.array(durations, np.float32),
            np.array([demand.limit for demand in self.demands], np.float32),
            np.array([demand.steps for demand in self.demands], np.float32),
            np.array([demand.rest for demand in self.demands], np.float32),
        )
        return self._arrays

    def _demand(self, job: Job | Booking, profile: Profile | None, seconds: float | None) -> Demand:
        limit = (job.thread_percent or 100) / 100
        if seconds is not None and not isfinite(seconds):
            raise ValueError(f"a duration of {seconds} s is no number to plan with")
        if profile is None or not profile.steps:
            steps = np.tile(np.array((limit, limit, 0, job.memory / _GIB), np.float32), (STEPS, 1))
            return Demand(seconds, limit, steps, steps)
        kept = self._profiles.get(id(profile))
        if kept is None or kept[0] is not profile:
            kept = self._profiles[id(profile)] = (profile, _divided(profile))
        return Demand(seconds, limit, *kept[1])


def _divided(profile: Profile) -> _Table:
    """Return the means of a profile's equal parts, and of all from each part on."""
    used = np.array(
        [(s.gpu / 100, s.core / (100 * SM_SATURATION), s.pcie, s.memory) for s in profile.steps]
    )
    if not np.isfinite(used).all() or (used < 0).any():
        raise ValueError(f"the profile of {profile.application!r} has steps that are no amounts")
    used[:, BUSY] = np.minimum(used[:, BUSY], 1)
    unmeasured = used[:, SM] == 0
    used[:, SM] = np.where(unmeasured, used[:, BUSY], np.minimum(used[:, SM], used[:, BUSY]))
    used[:, MEMORY] /= _GIB
    sums = np.vstack((np.zeros(RESOURCES), np.cumsum(used, axis=0))) * (STEPS / len(used))
    edges = np.linspace(0, len(used), STEPS + 1)
    at_edges = [np.interp(edges, np.arange(len(sums)), sums[:, i]) for i in range(RESOURCES)]
    steps = np.diff(np.stack(at_edges, axis=1), axis=0).astype(np.float32)
    count = np.arange(STEPS, 0, -1, dtype=np.float32)[:, None]
    rest = (np.cumsum(steps[::-1], axis=0)[::-1] / count).astype(np.float32)
    return steps, rest
