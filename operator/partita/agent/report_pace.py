"""When a change of a GPU's report is written.

A write takes CPU time of the API server, and all watchers receive it (docs/performance.md, "What
does it cost?"). So only what somebody acts upon is written soon:

- states of the GPU and of MPS, at once,
- what decides about a job: that it is idle, a wrong limit, too many clients, memory above its
  allocation, and its peak when its programs have left the GPU; within a second,
- other numbers only if they have changed noticeably, after a pause that grows with the time since
  a job has begun to use the GPU. So the numbers of short jobs are as good as those of long ones.

The agent's metrics show all numbers as they are (`partita.agent.metrics`).
"""

from collections.abc import Mapping
from math import inf
from typing import Any, Final

from partita.agent.gpu_report import GPUReport, JobReport
from partita.agent.times import AgentTimes
from partita.models.quantities import parse_memory

__all__ = ["ReportPace"]

_UTILIZATION_STEP: Final = 5
"""Smallest change of a utilisation that is written, in percentage points."""
_MEMORY_STEP: Final = 0.01
"""Smallest change of a job's or of all memory that is written, as a share of the GPU's memory."""
_DECISIVE: Final = ("excessProcesses", "limitMismatch", "idleSince")
"""Fields of a job's usage that decide what happens to the job."""
_MPS_STATES: Final = {"state", "killedClient"}
"""Fields of MPS that decide what happens to the jobs of the GPU."""

Json = Mapping[str, Any]


class ReportPace:
    """Decides when changes of one GPU's report are due.

    Parameters
    ----------
    times
        How long it waits.
    """

    def __init__(self, times: AgentTimes) -> None:
        self._times = times
        self._written_at = -inf
        self._begun_at = -inf
        self._active: set[str] = set()

    def written(self, at: float) -> None:
        """Take note of a write; `at` in seconds of a monotonic clock."""
        self._written_at = at

    def is_due(
        self, patch: Json, known: Json, report: GPUReport, at: float, *, ending: bool = False
    ) -> bool:
        """Return whether a patch is to be written now.

        Parameters
        ----------
        patch
            What the report changes in the status.
        known
            The current status.
        report
            The report.
        at
            Seconds of a monotonic clock.
        ending
            Whether kubelet is about to report the end of a Pod: then peaks are due.
        """
        active = {uid for uid, job in report.jobs.items() if job.memory}
        if active - self._active:
            self._begun_at = at
        self._active = active
        if patch.keys() - {"usage", "mps"} or patch.get("mps", {}).keys() & _MPS_STATES:
            return True
        old = known.get("usage") or {}
        if ending and _peaks_differ(old, report):
            return True
        since = at - self._written_at
        if _decides(old, report):
            return since >= self._times.decisive_every
        shortest, longest = self._times.numbers_every
        pause = min(longest, max(shortest, (at - self._begun_at) / 2))
        return since >= pause and ("mps" in patch or _has_moved(old, report))


def _decides(old: Json, report: GPUReport) -> bool:
    """Return whether something differs that decides about a job, or the unknown processes."""
    jobs: Json = old.get("jobs") or {}
    gone = (jobs[uid] for uid in jobs.keys() - report.jobs.keys())
    unknown = (old.get("unknownProcesses") or {}).get("count", 0)
    return (
        unknown != report.unknown.get("count", 0)
        or any(key in use for use in gone for key in _DECISIVE)
        or any(_decides_job(jobs.get(uid, {}), job) for uid, job in report.jobs.items())
    )


def _decides_job(old: Json, job: JobReport) -> bool:
    new, peak = job.dump(), old.get("peakMemory", "0")
    if any(old.get(key) != new.get(key) for key in _DECISIVE):
        return True
    left = not job.memory and _is_other_use(old, new)
    return left or parse_memory(new["peakMemory"]) > job.limit >= parse_memory(peak)


def _is_other_use(old: Json, new: Json) -> bool:
    """Return whether the peak is another one, or that of another attempt."""
    return old.get("peakMemory") != new["peakMemory"] or _is_other_attempt(old, new)


def _is_other_attempt(old: Json, new: Json) -> bool:
    """Return whether the usage is that of another attempt of the job."""
    return bool(old.get("firstUse") != new.get("firstUse"))


def _peaks_differ(old: Json, report: GPUReport) -> bool:
    jobs: Json = old.get("jobs") or {}
    return any(_is_other_use(jobs.get(uid, {}), job.dump()) for uid, job in report.jobs.items())


def _has_moved(old: Json, report: GPUReport) -> bool:
    """Return whether numbers differ by more than their usual noise."""
    jobs: Json = old.get("jobs") or {}
    pairs = [(jobs.get(uid, {}), job) for uid, job in report.jobs.items()]
    busy = [
        (old.get("gpuUtilization", 0), report.utilization),
        *((was.get("gpuUtilization", 0), job.utilization or 0) for was, job in pairs),
    ]
    memory = [
        (old.get("memory", 0), report.memory),
        *((was.get("memory", 0), job.memory) for was, job in pairs),
        *((was.get("peakMemory", 0), job.peak) for was, job in pairs),
    ]
    step = report.total * _MEMORY_STEP
    return (
        bool(jobs.keys() ^ report.jobs.keys())
        or any(_is_other_attempt(was, job.dump()) for was, job in pairs)
        or any(abs(was - now) >= _UTILIZATION_STEP for was, now in busy)
        or any((was == 0) != (now == 0) for was, now in busy[:1])
        or any(abs(parse_memory(was) - now) > step for was, now in memory)
    )
