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
from partita.models.quantities import mebibytes, parse_memory

__all__ = ["ReportPace"]

_UTILIZATION_STEP: Final = 5
"""Smallest change of a utilisation that is written, in percentage points."""
_MEMORY_STEP: Final = 0.01
"""Smallest change of a job's or of all memory that is written, as a share of the GPU's memory."""
_DECISIVE: Final = {"excessProcesses", "limitMismatch", "idleSince"}
"""Fields of a job's usage that decide what happens to the job."""
_PEAK: Final = {"peakMemory", "firstUse"}
"""Fields of a job's usage that differ with another peak, or with that of another attempt."""
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
        self.written_at = -inf
        """Time of the last write, seconds of a monotonic clock."""
        self._begun_at = -inf
        self._active: set[str] = set()

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
        old, new = known.get("usage") or {}, patch.get("usage") or {}
        changed = _changed_fields(old.get("jobs") or {}, new.get("jobs") or {})
        peaks = {uid for uid in report.jobs if changed.get(uid, set()) & _PEAK}
        if ending and peaks:
            return True
        since = at - self.written_at
        unknown = new.get("unknownProcesses", {})
        if (
            unknown is None
            or "count" in unknown
            or any(fields & _DECISIVE for fields in changed.values())
            or any(_is_final(report.jobs[uid], old, uid) for uid in peaks)
        ):
            return since >= self._times.decisive_every
        shortest, longest = self._times.numbers_every
        pause = min(longest, max(shortest, (at - self._begun_at) / 2))
        has_moved = any("firstUse" in fields for fields in changed.values())
        return since >= pause and ("mps" in patch or has_moved or _has_moved(old, report))


def _changed_fields(old: Json, new: Json) -> dict[str, set[str]]:
    """Return the fields that a patch changes, by job; all of a job that is gone."""
    return {uid: set(old[uid] if job is None else job) for uid, job in new.items()}


def _is_final(job: JobReport, old: Json, uid: str) -> bool:
    """Return whether a peak is that of a job that has left the GPU, or first above its limit."""
    before = (old.get("jobs") or {}).get(uid, {}).get("peakMemory", "0")
    peak = parse_memory(mebibytes(job.peak))
    return not job.memory or peak > job.limit >= parse_memory(before)


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
        or any(abs(was - now) >= _UTILIZATION_STEP for was, now in busy)
        or any((was == 0) != (now == 0) for was, now in busy[:1])
        or any(abs(parse_memory(was) - now) > step for was, now in memory)
    )
