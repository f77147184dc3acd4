"""Attributes the usage of the GPU to jobs, and stores each job's usage over time.

- Memory is what the driver counts for the cgroups of the job's containers, where it limits them.
  Otherwise it is the sum over the job's processes. NVML reports it for each process, including MPS
  clients.
- GPU utilisation is the sum over the job's processes if the driver samples it (percent of the SMs).
  Otherwise the GPU's utilisation is divided equally among the jobs on it. Under MPS many drivers
  credit the clients' use of the SMs to the server, which is the active process for NVML
  (https://docs.nvidia.com/deploy/mps/latest/common-tasks.html, "nvidia-cuda-mps-server";
  https://github.com/NVIDIA/dcgm-exporter/issues/388): it is divided equally, too.
- SM occupancy and PCIe throughput are measured only for the whole GPU. A job alone on the GPU gets
  both values. Otherwise they are divided among the jobs in proportion to their utilisation, or
  equally if no job has any. So the profile of a job that was always co-located is an estimate in
  these two metrics.
- A job has used the GPU if one of its processes has a share of the SMs
  (`nvmlDeviceGetProcessUtilization`, `smUtil`), or if a part of the use may be its own: that of the
  MPS server, or a kernel (`nvmlDeviceGetUtilizationRates`, `gpu`) while no process has a share. So
  no busy job is taken for idle. Source: NVML API reference, "Device Queries"
  (https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html).
"""

from array import array
from collections import defaultdict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from math import exp
from typing import Final, NamedTuple, TypeVar

from partita.agent.times import AgentTimes

__all__ = [
    "PROFILE_STEPS",
    "SAMPLE_INTERVAL",
    "GPUSample",
    "MovingMean",
    "TracePoint",
    "UsageTrace",
    "attribute",
]

Job = TypeVar("Job", bound=Hashable)

SAMPLE_INTERVAL: Final = 0.1
"""Seconds between two samples, unless the driver counts the memory of jobs."""
PROFILE_STEPS: Final = 64
"""Most steps of a profile; the resource holds 256. An assumption: 64 show the phases of the study's
applications and keep the object small."""
_DECAY: Final = 30.0
"""Seconds after which a value counts 1/e as much: the last minute counts 86 %. The status is
written once a minute, so a shorter time would make it depend on chance."""
_ROUNDING: Final = 1e-3
"""Fraction of a step by which a timestamp may be too low: floating-point sums are not exact."""


@dataclass(frozen=True, slots=True)
class GPUSample:
    """The metrics of a GPU at one time. None if the GPU does not report a metric."""

    at: float
    """Time in seconds, from `time.time`."""
    memory: Mapping[int, int]
    """Bytes by PID."""
    used: int = 0
    """Bytes in use on the GPU, including the driver's own memory."""
    unattributed: int = 0
    """Bytes of `used` that belong to no process: the driver's own, and what NVML does not list."""
    utilization: float | None = None
    """Percent of the time in which a kernel ran."""
    shares: Mapping[int, int] | None = None
    """Percent of the SMs by PID."""
    occupancy: float | None = None
    """Percent of the warps that were active."""
    pcie: float | None = None
    """PCIe bytes per second, the sum of both directions."""
    bandwidth: float | None = None
    """Percent of the time in which the GPU's memory was read or written."""


class TracePoint(NamedTuple):
    """Usage of one job at one time. None if the GPU does not report a metric."""

    memory: int = 0
    """Bytes."""
    utilization: float | None = None
    """Percent."""
    occupancy: float | None = None
    """Percent."""
    pcie: float | None = None
    """Bytes per second."""
    bandwidth: float | None = None
    """Percent of the memory bandwidth."""
    in_use: bool = False
    """Whether a kernel of the job ran, or may have run."""


_NOTHING: Final = TracePoint()


def attribute(
    sample: GPUSample,
    jobs: Mapping[int, Job],
    counted: Mapping[Job, int] | None = None,
    *,
    mps: bool = False,
) -> dict[Job, TracePoint]:
    """Divide a sample among the jobs whose processes are on the GPU.

    Parameters
    ----------
    jobs
        Job by PID. Processes that belong to no job are missing.
    counted
        Bytes of those jobs whose memory the driver counts.
    mps
        Whether the jobs are clients of MPS: then what other processes use is the server's.
    """
    memory: dict[Job, int] = defaultdict(int)
    for pid, job in jobs.items():
        memory[job] += sample.memory.get(pid, 0)
    own: dict[Job, float] = dict.fromkeys(memory, 0.0)
    shares = sample.shares or {}
    for pid, share in shares.items():
        if pid in jobs:
            own[jobs[pid]] += share
    shared = sample.utilization
    """Percent that may be of any job."""
    if any(shares.values()):
        shared = float(sum(s for pid, s in shares.items() if pid not in jobs)) if mps else 0.0
    for job in own:
        own[job] += (shared or 0.0) / len(own)
    busy = sum(own.values())
    usage: dict[Job, TracePoint] = {}
    for job, used in own.items():
        part = used / busy if busy else 1 / len(own)
        usage[job] = TracePoint(
            (counted or {}).get(job, memory[job]),
            None if shared is None else min(100.0, used),
            None if sample.occupancy is None else sample.occupancy * part,
            None if sample.pcie is None else sample.pcie * part,
            None if sample.bandwidth is None else sample.bandwidth * part,
            used > 0 or shared is None,
        )
    return usage


class MovingMean:
    """A mean in which each value counts for the time since the one before, and older ones less."""

    def __init__(self) -> None:
        self._sum = 0.0
        self._weight = 0.0
        self._at: float | None = None

    def add(self, at: float, value: float | None) -> None:
        """Add a value; None if it was not measured. `at` in seconds."""
        if value is None:
            return
        kept = exp(-(SAMPLE_INTERVAL if self._at is None else max(0.0, at - self._at)) / _DECAY)
        self._at = at
        self._sum = self._sum * kept + value * (1 - kept)
        self._weight = self._weight * kept + (1 - kept)

    @property
    def value(self) -> float | None:
        """The mean; None if nothing was measured."""
        return self._sum / self._weight if self._weight else None


class _Bin:
    """The usage in one interval: the largest memory, and the mean of the other metrics over time.

    A job has up to 128 of them, so they are kept small.
    """

    __slots__ = ("memory", "sums")

    def __init__(self) -> None:
        self.memory = 0
        self.sums = array("d", bytes(8 * 8))
        """Sum and weight of each other metric."""

    def add(self, usage: TracePoint, seconds: float) -> None:
        self.memory = max(self.memory, usage.memory)
        values = usage.utilization, usage.occupancy, usage.pcie, usage.bandwidth
        for index, value in enumerate(values):
            if value is not None:
                self.sums[2 * index] += value * seconds
                self.sums[2 * index + 1] += seconds

    def merge(self, other: "_Bin", weight: float = 1.0) -> None:
        self.memory = max(self.memory, other.memory)
        for index, value in enumerate(other.sums):
            self.sums[index] += value * weight

    def usage(self) -> TracePoint:
        pairs = zip(self.sums[::2], self.sums[1::2], strict=True)
        busy, occupancy, pcie, bandwidth = (s / weight if weight else None for s, weight in pairs)
        return TracePoint(self.memory, busy, occupancy, pcie, bandwidth)


@dataclass(slots=True)
class UsageTrace:
    """The usage of one job over time, in at most twice as many intervals as a profile has steps.

    When it is full, pairs of intervals are merged into intervals of twice the length. The peak of
    the memory and the means of the other metrics do not change.

    Parameters
    ----------
    limit
        Steps of the profile.
    interval
        Length of an interval, seconds, which grows.
    idle_after
        Seconds without a kernel after which the job is idle.
    """

    limit: int = PROFILE_STEPS
    interval: float = SAMPLE_INTERVAL
    idle_after: float = AgentTimes.idle_after
    first: float | None = None
    """Time of the job's first use of the GPU, from `time.time`."""
    peak: int = 0
    """Largest memory, bytes."""
    last: TracePoint = _NOTHING
    """The usage that was added last."""
    _bins: list[_Bin] = field(default_factory=list)
    _utilization: MovingMean = field(default_factory=MovingMean)
    _unused_since: float | None = None
    _newest: float = 0.0

    def add(self, at: float, usage: TracePoint) -> None:
        """Add a sample; a sample older than the first one counts at the time of the first one."""
        if self.first is None:
            self.first = at
        self.peak = max(self.peak, usage.memory)
        since, self._newest = at - self._newest, at
        self._utilization.add(at, usage.utilization)
        if usage.in_use:
            self._unused_since = None
        elif self._unused_since is None:
            self._unused_since = at
        before, self.last = self.last, usage
        index = max(0, int((at - self.first) / self.interval + _ROUNDING))
        while index >= 2 * self.limit:
            self._halve()
            index //= 2
        while len(self._bins) < index:
            # Between two samples the usage is that of the earlier one.
            self._bins.append(_Bin())
            self._bins[-1].add(before, self.interval)
        if len(self._bins) == index:
            self._bins.append(_Bin())
        self._bins[index].add(usage, max(SAMPLE_INTERVAL, min(since, self.interval)))

    @property
    def utilization(self) -> float | None:
        """Percent in the last minute; None if it is not measured, or no program is there."""
        return None if self.last.utilization is None else self._utilization.value

    @property
    def idle_since(self) -> float | None:
        """Time since which no kernel of the job has run, from `time.time`.

        None if one has run in the last seconds (`AgentTimes.idle_after`).
        """
        since = self._unused_since
        return since if since is not None and self._newest - since >= self.idle_after else None

    def __len__(self) -> int:
        return len(self._bins)

    def _halve(self) -> None:
        for left, right in zip(self._bins[::2], self._bins[1::2], strict=False):
            left.merge(right)
        self._bins = self._bins[::2]
        self.interval *= 2

    def steps(self, start: float, end: float) -> list[TracePoint]:
        """Divide a run into equal steps; usage is zero before the first and after the last sample.

        Parameters
        ----------
        start, end
            Start and end of the run, from `time.time`.
        """
        duration = max(end - start, self.interval)
        count = max(1, min(self.limit, round(duration / self.interval)))
        offset = (start if self.first is None else self.first) - start
        step = duration / count
        made = [_Bin() for _ in range(count)]
        for number, old in enumerate(self._bins):
            since = min(max(0.0, offset + number * self.interval), duration)
            until = min(max(0.0, offset + (number + 1) * self.interval), duration)
            first = min(count - 1, int(since / step + _ROUNDING))
            last = min(count - 1, max(first, int(until / step - _ROUNDING)))
            for index in range(first, last + 1):
                overlap = min(until, (index + 1) * step) - max(since, index * step)
                # The memory peak of an interval that only touches the step counts, too.
                made[index].merge(old, max(overlap / self.interval, 1e-6))
        return [step_usage.usage() for step_usage in made]
