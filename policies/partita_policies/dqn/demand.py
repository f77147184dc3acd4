"""Resource demands of jobs over time, as arrays.

The demand of a job with a profile is the measured use. A job without a profile is assumed to keep
the GPU as busy as its threads allow for its whole duration. This assumption is conservative: it
makes co-location with such a job unlikely.
"""

from math import isfinite
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from partita_policies.interference import SM_SATURATION
from partita_policies.profile_cache import ProfileCache
from partita_policies.types import Job, Profile, RunningJob

__all__ = [
    "BUSY",
    "MEMORY",
    "PCIE",
    "RESOURCES",
    "SM",
    "STEPS",
    "Catalogue",
    "Demands",
    "Division",
    "Floats",
    "Integers",
    "divided",
]

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]

STEPS = 16
"""Equal parts into which every profile is divided."""
RESOURCES = 4
BUSY, SM, PCIE, MEMORY = range(RESOURCES)
"""Columns: share of the time in which a kernel runs, share of the SMs, PCIe bytes per second, GiB.
These are the four resources of the DqnGPU study. GPU cores are converted as by
`interference.load_of`."""

UNKNOWN_DURATION = 600.0
"""Seconds assumed for a job of unknown duration if the duration of no other job is known."""
_GIB = float(1 << 30)


class Division(NamedTuple):
    """A profile divided into equal parts."""

    steps: Floats
    """(STEPS, RESOURCES): use of each part."""
    rests: Floats
    """(STEPS, RESOURCES): mean of each part and the later parts."""
    peak: Floats
    """(RESOURCES): largest use of any part."""


class Demands(NamedTuple):
    """Demands of N job classes without co-located jobs."""

    durations: Floats
    """(N): seconds."""
    limits: Floats
    """(N): share of the SMs that a job may use."""
    steps: Floats
    """(N, STEPS, RESOURCES): use of each part."""
    rests: Floats
    """(N, STEPS, RESOURCES): mean of each part and the later parts."""
    peaks: Floats
    """(N, RESOURCES): largest use of any part."""


class Catalogue:
    """The demands of the jobs of one decision, one entry for each class of jobs.

    Parameters
    ----------
    profiles
        Cache of divided profiles that is kept between decisions. By default a new cache.
    """

    def __init__(self, profiles: ProfileCache[Division] | None = None) -> None:
        self._profiles = profiles or ProfileCache(divided)
        self._profiles.begin()
        self._index: dict[tuple[int, float | None, int, int], int] = {}
        self._durations: list[float | None] = []
        self._constant: list[tuple[float, float, float, float]] = []
        """Constant demand of each class, used unless it has a measured profile."""
        self._measured: dict[int, Division] = {}
        self._demands: Demands | None = None

    def index(self, job: Job | RunningJob) -> int:
        """Return the index of a job's demand in `demands`, and add the demand if it is new."""
        profile, duration = job.profile, job.duration
        if profile is None:
            key = (0, duration, job.thread_percent, job.memory)
        else:
            if duration is None:
                duration = profile.duration
            key = (id(profile), duration, job.thread_percent, -1 if profile.steps else job.memory)
        known = self._index.get(key)
        if known is None:
            known = self._index[key] = self._add(job, duration)
        return known

    def demands(self) -> Demands:
        """Return the demands indexed so far."""
        count = len(self._durations)
        if self._demands is not None and len(self._demands.durations) == count:
            return self._demands
        known = [duration for duration in self._durations if duration]
        typical = sum(known) / len(known) if known else UNKNOWN_DURATION
        durations = [max(duration or typical, 1.0) for duration in self._durations]
        constant = np.array(self._constant, np.float32).reshape(count, 1, RESOURCES)
        steps, peaks = constant.repeat(STEPS, axis=1), constant[:, 0].copy()
        rests = steps.copy()
        for place, division in self._measured.items():
            steps[place], rests[place], peaks[place] = division
        limits = np.array([limit for limit, *_ in self._constant], np.float32)
        self._demands = Demands(np.array(durations, np.float32), limits, steps, rests, peaks)
        return self._demands

    def _add(self, job: Job | RunningJob, seconds: float | None) -> int:
        if seconds is not None and not isfinite(seconds):
            raise ValueError(f"a duration of {seconds} s is no number to plan with")
        place, profile = len(self._durations), job.profile
        if profile is not None and profile.steps:
            self._measured[place] = self._profiles.of(profile)
        limit = (job.thread_percent or 100) / 100
        self._constant.append((limit, limit, 0.0, job.memory / _GIB))
        self._durations.append(seconds)
        return place


def divided(profile: Profile) -> Division:
    """Divide a profile with at least one step into equal parts.

    Raises
    ------
    ValueError
        An amount in the profile is negative or not finite.
    """
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
    return Division(steps, rest, steps.max(axis=0))
