"""What each run on the GPU has used: its trace, its neighbours, and whether its claim is idle."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from partita.agent.allocations import AllocationReader, Key, LedgerEntry
from partita.agent.times import AgentTimes
from partita.agent.usage.job_usage import GPUSample, TracePoint, UsageTrace, attribute
from partita.agent.usage.neighbours import UNKNOWN, NeighbourTimes, Times
from partita.models import SharingMode
from partita.models.profile import application_hash

__all__ = ["MeasuredRun", "RunUsage"]


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A run that was removed from the ledger, or one that never ends by itself."""

    allocation: LedgerEntry
    trace: UsageTrace
    at: float
    """Time of its last sample, from `time.time`."""
    beside: Times = field(default_factory=dict)
    """The jobs that used the GPU at the same time; empty under time slicing."""


class RunUsage:
    """What the runs on one GPU have used.

    Parameters
    ----------
    ledger
        The allocations of the GPU.
    mode
        How the GPU is shared.
    times
        How long it waits.
    """

    def __init__(self, ledger: AllocationReader, mode: SharingMode, times: AgentTimes) -> None:
        self._ledger = ledger
        self._mode = mode
        self._times = times
        self.measured: asyncio.Queue[MeasuredRun] = asyncio.Queue()
        """Runs whose measurement may be merged into a profile."""
        self.traces: dict[Key, UsageTrace] = {}
        """The usage of each run that has used the GPU."""
        self._at: float | None = None
        """Time of the newest sample, from `time.time`."""
        self._neighbours: NeighbourTimes[Key] = NeighbourTimes()
        self._learn_after: dict[Key, float] = {}
        """Seconds of use after which the usage of a lasting workload is stored next."""
        self._unused_since: dict[Key, float] = {}
        """Time of the first sample of each claim that has not used the GPU since."""

    def add(self, sample: GPUSample, runs: Mapping[int, Key], counted: Mapping[Key, int]) -> None:
        """Add a sample.

        Parameters
        ----------
        runs
            The run of each process that belongs to one, by PID.
        counted
            Bytes of those runs whose memory the driver counts.
        """
        usage = attribute(sample, runs, counted, mps=self._mode is SharingMode.MPS)
        for key, used in usage.items():
            if key not in self.traces:
                self.traces[key] = UsageTrace(idle_after=self._times.idle_after)
            self.traces[key].add(sample.at, used)
        if self._mode is not SharingMode.TIME_SLICING and self._at is not None:
            applications = {key: self._application(key) for key in usage}
            self._neighbours.add(sample.at - self._at, applications)
        for key in self.traces.keys() - usage.keys():
            # The run has an allocation, but no process on the GPU at the moment.
            self.traces[key].add(sample.at, TracePoint())
        pods = {entry.key for entry in self._ledger.allocations.values() if not entry.job}
        unused = pods - self.traces.keys()
        self._unused_since = {key: self._unused_since.get(key, sample.at) for key in unused}
        self._at = sample.at

    def _application(self, key: Key) -> str:
        allocation = self._ledger.allocations.get(key)
        if allocation is None or not allocation.application:
            return UNKNOWN
        return application_hash(allocation.namespace, allocation.application)

    def learn(self) -> None:
        """Queue what workloads that never end have used, each time they lasted twice as long."""
        for key, trace in self.traces.items():
            allocation = self._ledger.allocations.get(key)
            if allocation is None or not allocation.lasting or self._at is None:
                continue
            lasted = self._at - (trace.first or self._at)
            if lasted >= self._learn_after.get(key, self._times.learn_after):
                self._learn_after[key] = 2 * lasted
                self.measured.put_nowait(MeasuredRun(allocation, trace, self._at))

    def end(self, allocation: LedgerEntry) -> bool:
        """Queue what a run has used that left the ledger; return whether it has used the GPU."""
        trace = self.traces.pop(allocation.key, None)
        self._learn_after.pop(allocation.key, None)
        beside = self._neighbours.pop(allocation.key)
        if trace is None or self._at is None:
            return False
        self.measured.put_nowait(MeasuredRun(allocation, trace, self._at, beside))
        return True

    def idle_claims(self) -> dict[Key, float]:
        """Return the claims that have never used the GPU, and since when, from `time.time`."""
        at = self._at or 0.0
        return {k: t for k, t in self._unused_since.items() if at - t >= self._times.idle_after}
