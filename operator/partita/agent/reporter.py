"""Tells the API server what the GPU is, how it is, and what is used of it.

Only what has changed is written. Conditions are written at once, what a job used most soon, and
mere numbers every few seconds: each write is one that the operator and every watcher sees, too.
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
from partita.models.base import format_time, mebibytes, parse_memory

__all__ = ["GPUReport", "JobUse", "Reporter", "status_patch"]

NUMBERS_EVERY: Final = 5.0
"""Seconds between two reports of mere numbers."""
PEAKS_EVERY: Final = 1.0
"""Seconds between two reports of a job's peak: an attempt that ran out of memory is sized by it."""
_UTILIZATION_STEP: Final = 5
"""Percent points of the GPU's use that are worth a write."""
_MEMORY_STEP: Final = 0.01
"""Share of the GPU's memory that is worth a write."""

_STATUS: Final[tuple[Literal["False"], Literal["True"]]] = ("False", "True")

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class JobUse:
    """What a job uses."""

    memory: int
    """Bytes now."""
    peak: int
    """Most bytes so far."""
    first_use: float | None
    """When it used the GPU first, of `time.time`."""
    excess: int = 0
    """Most MPS clients, where one was ended because they were too many."""

    def dump(self) -> Json:
        """Write it as in the GPUServer's status."""
        first = self.first_use
        return {
            "memory": mebibytes(self.memory),
            "peakMemory": mebibytes(self.peak),
            **({"firstUse": format_time(datetime.fromtimestamp(first, UTC))} if first else {}),
            **({"excessProcesses": self.excess} if self.excess else {}),
        }


@dataclass(frozen=True, slots=True)
class GPUReport:
    """All that there is to report at a time."""

    facts: Mapping[str, Any]
    """Fields of the status that never change by themselves: what the GPU is."""
    verdict: ServerConditions
    total: int
    """The GPU's whole memory, bytes."""
    memory: int
    """Bytes in use on the GPU."""
    utilization: int
    """Percent."""
    jobs: Mapping[str, JobUse] = field(default_factory=dict)
    """By UID."""
    mps: Mapping[str, Any] | None = None
    """State and number of clients; None where MPS does not run."""
    unknown: Mapping[str, Any] = field(default_factory=dict)
    """Processes without an allocation, as in the status; empty where there are none."""


def status_patch(
    picture: GPUReport,
    known: Mapping[str, Any],
    now: datetime,
) -> Json:
    """Return the merge patch (RFC 7386) that makes a status show the picture; empty when it does.

    Parameters
    ----------
    known
        The status as it stands.
    """
    patch: Json = {k: v for k, v in picture.facts.items() if known.get(k) != v}
    if picture.mps is not None and known.get("mps") != picture.mps:
        patch["mps"] = dict(picture.mps)
    jobs = {uid: use.dump() for uid, use in picture.jobs.items()}
    usage = {
        "memory": mebibytes(picture.memory),
        "gpuUtilization": picture.utilization,
        "jobs": jobs,
    }
    had_unknown = (known.get("usage") or {}).get("unknownProcesses")
    if picture.unknown or had_unknown:
        usage["unknownProcesses"] = dict(picture.unknown) or None
    old_jobs = (known.get("usage") or {}).get("jobs") or {}
    if _shown(usage) != _shown(known.get("usage") or {}):
        patch["usage"] = usage | {"jobs": {**jobs, **dict.fromkeys(old_jobs.keys() - jobs.keys())}}
    conditions = _conditions(picture.verdict, known, now)
    if conditions is not None:
        patch["conditions"] = conditions
    return patch


def _shown(usage: Mapping[str, Any]) -> Any:
    """Leave out what is not worth a write of its own."""
    jobs = {
        uid: {k: v for k, v in use.items() if k != "firstUse"}
        for uid, use in (usage.get("jobs") or {}).items()
    }
    return usage.get("memory"), usage.get("gpuUtilization"), jobs, usage.get("unknownProcesses")


def _conditions(
    verdict: ServerConditions, known: Mapping[str, Any], now: datetime
) -> list[Json] | None:
    old = tuple(map(Condition.model_validate, known.get("conditions") or ()))
    fault = verdict.fault
    new = old
    for condition in (
        Condition(
            type="Ready",
            status=_STATUS[verdict.ready],
            reason=verdict.reason,
            message=verdict.message,
        ),
        Condition(
            type="Faulted",
            status=_STATUS[fault is not None],
            reason=fault.reason if fault else "Healthy",
            message=fault.message if fault else "",
        ),
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
        self._written_at = -NUMBERS_EVERY
        self._log = structlog.get_logger(__name__).bind(server=name)

    def take(self, status: Json) -> None:
        """Note the status as the API server has it."""
        self._known = status

    async def report(self, picture: GPUReport, at: float) -> bool:
        """Write what is due; tell whether something was written.

        Parameters
        ----------
        at
            Seconds, of a clock that only goes forward.
        """
        patch = status_patch(picture, self._known, datetime.now(UTC))
        if not patch or not self._due(patch, picture, at - self._written_at):
            return False
        self._written_at = at
        try:
            body = await self._kube.patch(
                SERVERS, self._name, {"status": patch}, subresource="status"
            )
        except KubernetesError as error:
            # The next look tries again, with what is true then.
            self._log.warning("not reported", error=str(error))
            return False
        self._known = body.get("status") or {}
        return True

    def _due(self, patch: Json, picture: GPUReport, since: float) -> bool:
        if patch.keys() - {"usage", "mps"}:
            return True
        old = self._known.get("usage") or {}
        state = (self._known.get("mps") or {}).get("state")
        if "mps" in patch and patch["mps"]["state"] != state:
            return True
        shown = _shown(old)[2]
        urgent = {
            uid: (use.get("peakMemory"), use.get("excessProcesses", 0))
            for uid, use in shown.items()
        } != {uid: (mebibytes(use.peak), use.excess) for uid, use in picture.jobs.items()}
        unknown = (old.get("unknownProcesses") or {}).get("count", 0)
        if urgent or unknown != picture.unknown.get("count", 0):
            return since >= PEAKS_EVERY
        if since < NUMBERS_EVERY:
            return False
        return "mps" in patch or self._worth_it(old, picture)

    def _worth_it(self, old: Json, picture: GPUReport) -> bool:
        """Tell whether numbers differ by more than they always do."""
        before = parse_memory(old.get("memory", 0))
        moved = abs(before - picture.memory) > picture.total * _MEMORY_STEP
        return (
            moved
            or abs(old.get("gpuUtilization", 0) - picture.utilization) >= _UTILIZATION_STEP
            or (picture.utilization == 0) != (old.get("gpuUtilization", 0) == 0)
        )
