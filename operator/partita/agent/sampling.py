"""What each job uses of the GPU, sample by sample, kept in a bounded number of steps.

How a figure is attributed to a job:

- Memory is the process's own: NVML tells it of each process, MPS clients too. A job's is the sum.
- GPU utilisation is the process's own where the driver samples it (percent of the SMs). Otherwise
  the GPU's is shared out evenly among the jobs that are on it.
- SM occupancy and PCIe throughput exist for the whole GPU only. A job alone on it gets all of
  both; among several they are shared out by their utilisation, evenly where none has any. So the
  profile of a job that always had neighbours is an estimate in these two.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

__all__ = ["PROFILE_STEPS", "SAMPLE_INTERVAL", "GPUReading", "Trace", "Use", "attribute"]

SAMPLE_INTERVAL: Final = 0.1
"""Seconds between two samples."""
PROFILE_STEPS: Final = 64
"""Most steps of a profile; the resource takes 256. An assumption: 64 show the phases of the
study's applications, and keep the object small."""


_ROUNDING: Final = 1e-3
"""Steps by which a sample at a step's very edge may be early: sums of tenths are not exact."""


@dataclass(frozen=True, slots=True)
class GPUReading:
    """One look at a GPU. None stands for what the GPU cannot tell."""

    at: float
    """Seconds, of `time.time`."""
    memory: Mapping[int, int]
    """Bytes by PID."""
    used: int = 0
    """Bytes in use on the GPU, the driver's own included."""
    utilization: float | None = None
    """Percent of the time in which a kernel ran."""
    shares: Mapping[int, int] | None = None
    """Percent of the SMs by PID."""
    occupancy: float | None = None
    """Percent of the warps that were active."""
    pcie: float | None = None
    """Bytes per second, both ways."""


@dataclass(frozen=True, slots=True)
class Use:
    """What one job uses at a time."""

    memory: int = 0
    """Bytes."""
    utilization: float | None = None
    """Percent."""
    occupancy: float | None = None
    """Percent."""
    pcie: float | None = None
    """Bytes per second."""


def attribute(reading: GPUReading, jobs: Mapping[int, str]) -> dict[str, Use]:
    """Share out a reading among the jobs whose processes are on the GPU.

    Parameters
    ----------
    jobs
        Job by PID; processes of nobody's are not in it.
    """
    memory: dict[str, int] = defaultdict(int)
    own: dict[str, float] = defaultdict(float)
    for pid, size in reading.memory.items():
        if pid in jobs:
            memory[jobs[pid]] += size
            own[jobs[pid]] += (reading.shares or {}).get(pid, 0)
    count = len(memory)
    busy = sum(own.values())
    uses: dict[str, Use] = {}
    for job, size in memory.items():
        part = own[job] / busy if busy else 1 / count
        utilization: float | None
        if reading.shares is not None:
            utilization = min(100.0, own[job])
        else:
            utilization = None if reading.utilization is None else reading.utilization / count
        uses[job] = Use(
            size,
            utilization,
            None if reading.occupancy is None else reading.occupancy * part,
            None if reading.pcie is None else reading.pcie * part,
        )
    return uses


@dataclass(slots=True)
class _Mean:
    total: float = 0.0
    count: float = 0.0

    def add(self, value: float | None, weight: float = 1.0) -> None:
        if value is not None:
            self.total += value * weight
            self.count += weight

    def merge(self, other: "_Mean", weight: float = 1.0) -> None:
        self.total += other.total * weight
        self.count += other.count * weight

    @property
    def value(self) -> float | None:
        return self.total / self.count if self.count else None


@dataclass(slots=True)
class _Bin:
    """What was seen in one stretch of time: the most memory, the mean of the rest."""

    memory: int = 0
    utilization: _Mean = field(default_factory=_Mean)
    occupancy: _Mean = field(default_factory=_Mean)
    pcie: _Mean = field(default_factory=_Mean)

    def add(self, use: Use) -> None:
        self.memory = max(self.memory, use.memory)
        self.utilization.add(use.utilization)
        self.occupancy.add(use.occupancy)
        self.pcie.add(use.pcie)

    def merge(self, other: "_Bin", weight: float = 1.0) -> None:
        self.memory = max(self.memory, other.memory)
        self.utilization.merge(other.utilization, weight)
        self.occupancy.merge(other.occupancy, weight)
        self.pcie.merge(other.pcie, weight)

    def use(self) -> Use:
        return Use(self.memory, self.utilization.value, self.occupancy.value, self.pcie.value)


class Trace:
    """The use of one job over time, in at most twice as many steps as a profile has.

    When it is full, two steps become one and each holds twice the time; peaks of memory and the
    means of the rest stay what they were.

    Parameters
    ----------
    limit
        Steps of the profile.
    interval
        Seconds of a step at first.
    """

    def __init__(self, limit: int = PROFILE_STEPS, interval: float = SAMPLE_INTERVAL) -> None:
        self._capacity = 2 * limit
        self._limit = limit
        self._width = interval
        self._bins: list[_Bin] = []
        self.first: float | None = None
        """When it used the GPU first, of `time.time`."""
        self.peak = 0
        """Most memory, bytes."""
        self.last = Use()
        """What was added last."""

    def add(self, at: float, use: Use) -> None:
        """Take a sample; one from before the first is taken as one at the first."""
        if self.first is None:
            self.first = at
        self.peak = max(self.peak, use.memory)
        self.last = use
        index = max(0, int((at - self.first) / self._width + _ROUNDING))
        while index >= self._capacity:
            self._halve()
            index //= 2
        while len(self._bins) <= index:
            self._bins.append(_Bin())
        self._bins[index].add(use)

    def __len__(self) -> int:
        return len(self._bins)

    def _halve(self) -> None:
        for left, right in zip(self._bins[::2], self._bins[1::2], strict=False):
            left.merge(right)
        self._bins = self._bins[::2]
        self._width *= 2

    def steps(self, start: float, end: float) -> list[Use]:
        """Cut a run into equal steps; before its first sample and after the last it was idle.

        Parameters
        ----------
        start, end
            When the run began and ended, of `time.time`.
        """
        duration = max(end - start, self._width)
        count = max(1, min(self._limit, round(duration / self._width)))
        offset = (start if self.first is None else self.first) - start
        step = duration / count
        made = [_Bin() for _ in range(count)]
        for number, seen in enumerate(self._bins):
            since = min(max(0.0, offset + number * self._width), duration)
            until = min(max(0.0, offset + (number + 1) * self._width), duration)
            first = min(count - 1, int(since / step + _ROUNDING))
            last = min(count - 1, max(first, int(until / step - _ROUNDING)))
            for index in range(first, last + 1):
                overlap = min(until, (index + 1) * step) - max(since, index * step)
                # A stretch at the very edge still tells of its peak.
                made[index].merge(seen, max(overlap / self._width, 1e-6))
        return [stretch.use() for stretch in made]
