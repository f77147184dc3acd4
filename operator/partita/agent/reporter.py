"""Writes the status of the GPUServer: properties, health and usage of the GPU.

Only changes are written, and `partita.agent.report_pace` says when.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

import structlog

from partita.agent.gpu_report import GPUReport
from partita.agent.health import condition
from partita.agent.report_pace import ReportPace
from partita.agent.times import AgentTimes
from partita.kube.client import SERVERS, Kube
from partita.kube.errors import KubernetesError
from partita.kube.merge_patch import merge_diff
from partita.models import Condition, set_condition
from partita.models.quantities import mebibytes

__all__ = ["Reporter", "status_patch"]

Json = dict[str, Any]


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
    usage = {
        "memory": mebibytes(report.memory),
        "gpuUtilization": report.utilization,
        "jobs": {uid: use.dump() for uid, use in report.jobs.items()},
        **({"unknownProcesses": report.unknown} if report.unknown else {}),
    }
    new = {**report.facts, "usage": usage}
    if report.mps is not None:
        new["mps"] = report.mps
    old_fields = {key: known[key] for key in new.keys() & known.keys()}
    patch = merge_diff(old_fields, {k: v for k, v in new.items() if v is not None})
    old = tuple(map(Condition.model_validate, known.get("conditions") or ()))
    conditions = _conditions(report, old, now)
    if conditions != old:
        patch["conditions"] = [condition.dump() for condition in conditions]
    return patch


def _conditions(
    report: GPUReport, conditions: tuple[Condition, ...], now: datetime
) -> tuple[Condition, ...]:
    current, fault = report.conditions, report.conditions.fault
    ready: Literal["True", "False"] = "True" if current.ready else "False"
    faulted = condition("Faulted", "False", "Healthy")
    if fault is not None:
        faulted = condition("Faulted", "True", fault.reason, fault.message)
    shown = condition("Ready", ready, current.reason, current.message)
    for new in (shown, faulted, *report.support):
        conditions = set_condition(conditions, new, now)
    return conditions


class Reporter:
    """Writes one GPUServer's status.

    Parameters
    ----------
    kube
        The API server.
    name
        The GPUServer.
    times
        How long it waits.
    """

    def __init__(self, kube: Kube, name: str, times: AgentTimes) -> None:
        self._kube = kube
        self._name = name
        self._known: Json = {}
        self._version = 0
        self._pace = ReportPace(times)
        self._log = structlog.get_logger(__name__).bind(server=name)

    def set_known(self, body: Json) -> None:
        """Set the status from a version of the GPUServer; an older version is ignored."""
        version = int(body["metadata"]["resourceVersion"])
        if version >= self._version:
            self._version, self._known = version, body.get("status") or {}

    async def report(self, report: GPUReport, at: float, *, ending: bool = False) -> bool:
        """Write changes that are due; return whether something was written.

        Parameters
        ----------
        at
            Seconds of a monotonic clock.
        ending
            Whether kubelet is about to report the end of a Pod: then peaks are due.
        """
        patch = status_patch(report, self._known, datetime.now(UTC))
        if not patch or not self._pace.is_due(patch, self._known, report, at, ending=ending):
            return False
        self._pace.written_at = at
        try:
            body = await self._kube.patch(
                SERVERS, self._name, {"status": patch}, subresource="status"
            )
        except KubernetesError as error:
            # A later call tries again with a newer report.
            self._log.warning("status not written", error=str(error))
            return False
        self.set_known(body)
        return True
