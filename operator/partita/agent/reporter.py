"""Writes the status of the GPUServer: properties, health and usage of the GPU.

Only changes are written. Conditions are written at once, peaks of jobs within a second and other
numbers every few seconds, because the operator and all other watchers receive each write.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal

import structlog

from partita.agent.health import ServerConditions
from partita.kube.client import SERVERS, Kube
from partita.kube.errors import KubernetesError
from partita.models import Condition, set_condition
from partita.models.gpu_server import LimitMismatch
from partita.models.quantities import format_time, mebibytes, parse_memory

__all__ = ["GPUReport", "JobReport", "Reporter", "status_patch"]

NUMBERS_EVERY: Final = 5.0
"""Seconds between two reports of numbers alone."""
PEAKS_EVERY: Final = 1.0
"""Seconds between two reports of a job's peak memory. The peak determines the size of the next
attempt after an out-of-memory error."""
_UTILIZATION_STEP: Final = 5
"""Smallest change of a utilisation that is written, in percentage points."""
_MEMORY_STEP: Final = 0.01
"""Smallest change of the memory in use that is written, as a share of the GPU's memory."""

_URGENT: Final = ("peakMemory", "excessProcesses", "limitMismatch", "idleSince")
"""Fields of a job's usage that decide what happens to the job."""
_STATUS: Final[tuple[Literal["False"], Literal["True"]]] = ("False", "True")

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class JobReport:
    """Usage of the GPU by one job."""

    memory: int
    """Current memory, bytes."""
    peak: int
    """Largest memory so far, bytes."""
    first_use: float | None
    """Time of the job's first use of the GPU, from `time.time`."""
    utilization: float | None = None
    """GPU utilisation, percent; None if it is not measured."""
    excess: int = 0
    """Largest number of MPS clients if one was terminated because of too many clients, else 0."""
    mismatch: LimitMismatch | None = None
    """The wrong memory limit of one of its containers; None if no limit is known to be wrong."""
    idle_since: float | None = None
    """Time since which none of its kernels has run, from `time.time`; None if it is not idle."""

    def dump(self) -> Json:
        """Return the usage as in the GPUServer's status."""
        first, busy, idle = self.first_use, self.utilization, self.idle_since
        return {
            "memory": mebibytes(self.memory),
            "peakMemory": mebibytes(self.peak),
            **({"gpuUtilization": round(busy)} if busy is not None else {}),
            **({"firstUse": _time(first)} if first else {}),
            **({"idleSince": _time(idle)} if idle is not None else {}),
            **({"excessProcesses": self.excess} if self.excess else {}),
            **({"limitMismatch": self.mismatch.dump()} if self.mismatch else {}),
        }


def _time(seconds: float) -> str:
    return format_time(datetime.fromtimestamp(seconds, UTC))


@dataclass(frozen=True, slots=True)
class GPUReport:
    """The content of a status."""

    facts: Mapping[str, Any]
    """Fields of the status that describe the GPU itself; a field that is None is unset."""
    conditions: ServerConditions
    total: int
    """The GPU's total memory, bytes."""
    memory: int
    """Bytes in use on the GPU."""
    utilization: int
    """Percent."""
    jobs: Mapping[str, JobReport] = field(default_factory=dict)
    """By UID."""
    mps: Mapping[str, Any] | None = None
    """State and number of clients; None in modes without MPS."""
    unknown: Mapping[str, Any] = field(default_factory=dict)
    """Processes without an allocation, as in the status; empty if none exist."""
    support: tuple[Condition, ...] = ()
    """Conditions about what the GPU supports, besides `Ready` and `Faulted`."""


def status_patch(
    report: GPUReport,
    known: Mapping[str, Any],
    now: datetime,
) -> Json:
    """Return the merge patch (RFC 7386) from a status to a report; empty if they are equal.

    Parameters
    ----------
    known
        The current status.
    """
    patch: Json = {
        k: _replaced(known.get(k), v) for k, v in report.facts.items() if known.get(k) != v
    }
    if report.mps is not None and known.get("mps") != report.mps:
        patch["mps"] = _replaced(known.get("mps"), report.mps)
    jobs = {uid: use.dump() for uid, use in report.jobs.items()}
    usage = {
        "memory": mebibytes(report.memory),
        "gpuUtilization": report.utilization,
        "jobs": jobs,
    }
    had_unknown = (known.get("usage") or {}).get("unknownProcesses")
    if report.unknown or had_unknown:
        usage["unknownProcesses"] = dict(report.unknown) or None
    old_jobs = (known.get("usage") or {}).get("jobs") or {}
    if _compared(usage) != _compared(known.get("usage") or {}):
        patch["usage"] = usage | {"jobs": _replaced(old_jobs, jobs)}
    conditions = _conditions(report, known, now)
    if conditions is not None:
        patch["conditions"] = conditions
    return patch


def _replaced(old: Any, new: Any) -> Any:
    """Return the merge patch that replaces a value and those in it: what is gone is null."""
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        return new
    changed = {key: _replaced(old.get(key), v) for key, v in new.items() if old.get(key) != v}
    return {**changed, **dict.fromkeys(old.keys() - new.keys())}


def _compared(usage: Mapping[str, Any]) -> Any:
    """Return the fields whose change causes a write."""
    jobs = {
        uid: {k: v for k, v in use.items() if k != "firstUse"}
        for uid, use in (usage.get("jobs") or {}).items()
    }
    return usage.get("memory"), usage.get("gpuUtilization"), jobs, usage.get("unknownProcesses")


def _conditions(report: GPUReport, known: Mapping[str, Any], now: datetime) -> list[Json] | None:
    old = tuple(map(Condition.model_validate, known.get("conditions") or ()))
    current = report.conditions
    fault = current.fault
    new = old
    for condition in (
        Condition(
            type="Ready",
            status=_STATUS[current.ready],
            reason=current.reason,
            message=current.message,
        ),
        Condition(
            type="Faulted",
            status=_STATUS[fault is not None],
            reason=fault.reason if fault else "Healthy",
            message=fault.message if fault else "",
        ),
        *report.support,
    ):
        new = set_condition(new, condition, now)
    return None if new == old else [condition.dump() for condition in new]


class Reporter:
    """Writes one GPUServer's status.

    Parameters
    ----------
    kube
        The API server.
    name
        The GPUServer.
    """

    def __init__(self, kube: Kube, name: str) -> None:
        self._kube = kube
        self._name = name
        self._known: Json = {}
        self._version = 0
        self._written_at = -NUMBERS_EVERY
        self._log = structlog.get_logger(__name__).bind(server=name)

    def set_known(self, body: Json) -> None:
        """Set the status from a version of the GPUServer; an older version is ignored."""
        version = int(body["metadata"]["resourceVersion"])
        if version >= self._version:
            self._version, self._known = version, body.get("status") or {}

    async def report(self, report: GPUReport, at: float) -> bool:
        """Write changes that are due; return whether something was written.

        Parameters
        ----------
        at
            Seconds of a monotonic clock.
        """
        patch = status_patch(report, self._known, datetime.now(UTC))
        if not patch or not self._due(patch, report, at - self._written_at):
            return False
        self._written_at = at
        try:
            body = await self._kube.patch(
                SERVERS, self._name, {"status": patch}, subresource="status"
            )
        except KubernetesError as error:
            # The next call tries again with a newer report.
            self._log.warning("status not written", error=str(error))
            return False
        self.set_known(body)
        return True

    def _due(self, patch: Json, report: GPUReport, since: float) -> bool:
        if patch.keys() - {"usage", "mps"}:
            return True
        old = self._known.get("usage") or {}
        if patch.get("mps", {}).keys() & {"state", "killedClient"}:
            return True
        shown = _compared(old)[2]
        urgent = {uid: [use.get(field) for field in _URGENT] for uid, use in shown.items()} != {
            uid: [use.dump().get(field) for field in _URGENT] for uid, use in report.jobs.items()
        }
        unknown = (old.get("unknownProcesses") or {}).get("count", 0)
        if urgent or unknown != report.unknown.get("count", 0):
            return since >= PEAKS_EVERY
        if since < NUMBERS_EVERY:
            return False
        return "mps" in patch or self._has_changed(old, report)

    def _has_changed(self, old: Json, report: GPUReport) -> bool:
        """Return whether numbers differ by more than their usual noise."""
        busy = (old.get("gpuUtilization", 0), report.utilization)
        shares = [
            ((old.get("jobs") or {}).get(uid, {}).get("gpuUtilization", 0), use.utilization or 0)
            for uid, use in report.jobs.items()
        ]
        before = parse_memory(old.get("memory", 0))
        moved = abs(before - report.memory) > report.total * _MEMORY_STEP
        return (
            moved
            or any(abs(was - now) >= _UTILIZATION_STEP for was, now in (busy, *shares))
            or (busy[0] == 0) != (busy[1] == 0)
        )
