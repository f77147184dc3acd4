"""Stores the profiles of applications in the API server.

A run is stored if it succeeded. A workload that never ends by itself, such as a service, is stored
while it runs, and when it has ended in any way.
"""

import asyncio
from datetime import UTC, datetime
from typing import Any, Final

import structlog
from pydantic import ValidationError

from partita.agent.allocations import read_pod
from partita.agent.times import AgentTimes
from partita.agent.usage.profiles import measurement, merge
from partita.agent.usage.run_usage import MeasuredRun
from partita.kube.client import PROFILES, Kube
from partita.kube.errors import AlreadyExistsError, ConflictError, KubernetesError, NotFoundError
from partita.models import ApplicationProfile, Outcome
from partita.models.errors import describe
from partita.models.profile import (
    ApplicationProfileSpec,
    Environment,
    Measurement,
    preferred,
    profile_name,
)
from partita.pods.outcome import read_outcome

__all__ = ["ProfileStore"]

_TRIES: Final = 5
"""Attempts to write one profile. Runs of one application may end at once on several GPUs."""


class ProfileStore:
    """Merges runs into ApplicationProfiles.

    Parameters
    ----------
    kube
        The API server.
    where
        The node and the GPU.
    since
        Time at which sampling of the GPU began, from `time.time`. A run that began earlier, under
        a previous agent, was not measured completely.
    times
        How long it waits.
    """

    def __init__(self, kube: Kube, where: Environment, since: float, times: AgentTimes) -> None:
        self._times = times
        self._kube = kube
        self._where = where
        self._since = since
        self._log = structlog.get_logger(__name__)

    async def keep(self, run: MeasuredRun) -> bool:
        """Merge a run; return whether it was merged."""
        allocation = run.allocation
        application = allocation.application
        if not (application and allocation.stores_usage) or run.trace.first is None:
            return False
        new = self._lasting(run) if allocation.lasting else await self._succeeded(run)
        if new is None:
            return False
        for _ in range(_TRIES):
            try:
                found = await self._find(allocation.namespace, application)
                known = found.spec if found else ApplicationProfileSpec(application=application)
                last = datetime.fromtimestamp(run.at, UTC)
                merged = merge(known, new).model_copy(update={"last_run": last})
                await self._write(found, merged, allocation.namespace)
            except (ConflictError, AlreadyExistsError, NotFoundError):
                await asyncio.sleep(self._times.profile_retry)
            else:
                self._log.info("run merged", application=application, job=allocation.user)
                return True
        self._log.warning("run not merged: too many conflicts", application=application)
        return False

    def _lasting(self, run: MeasuredRun) -> Measurement | None:
        """Measure a run that never ends by itself; None if it was too short."""
        first = run.trace.first
        if first is None or run.at - first < self._times.learn_after:
            return None
        return measurement(run.trace.steps(first, run.at), run.at - first, self._where)

    async def _succeeded(self, run: MeasuredRun) -> Measurement | None:
        """Measure a run that has succeeded; None if it has not, or was not measured completely."""
        allocation = run.allocation
        body = await read_pod(self._kube, allocation)
        if body is None:
            return None
        outcome = read_outcome(body.get("status") or {})
        start, end = outcome.started_at, outcome.finished_at
        if outcome.outcome is not Outcome.SUCCEEDED or start is None or end is None:
            return None
        # Kubernetes' times are whole seconds, rounded down.
        if start.timestamp() + 1 <= self._since:
            return None
        last = max(end.timestamp(), min(run.at, end.timestamp() + 1))
        usage = run.trace.steps(start.timestamp(), last)
        seconds, pod_uid = max(1.0, (end - start).total_seconds()), allocation.pod_uid
        return measurement(usage, seconds, self._where, run.beside, pod_uid=pod_uid)

    async def run(self, queue: "asyncio.Queue[MeasuredRun]") -> None:
        """Merge the runs of a queue until cancelled."""
        while True:
            measured = await queue.get()
            try:
                await self.keep(measured)
            except (KubernetesError, _UnreadableError) as error:
                self._log.warning("run not merged", job=measured.allocation.user, error=str(error))

    async def _find(self, namespace: str, application: str) -> ApplicationProfile | None:
        """Find the profile of an application that the operator uses; its name may be any.

        Raises
        ------
        _UnreadableError
            A profile of the application cannot be read. A new profile would lose its history.
        """
        items, _ = await self._kube.list(PROFILES, namespace=namespace)
        return preferred(
            _read(item)
            for item in items
            if (item.get("spec") or {}).get("application") == application
        )

    async def _write(
        self, known: ApplicationProfile | None, spec: ApplicationProfileSpec, namespace: str
    ) -> None:
        if known is None:
            meta = {"name": profile_name(spec.application), "namespace": namespace}
            await self._kube.create(PROFILES, {"metadata": meta, "spec": spec.dump()})
            return
        await self._kube.patch(
            PROFILES,
            known.metadata.name,
            {"spec": {name: spec.dump()[name] for name in ("measurements", "lastRun")}},
            namespace=namespace,
            resource_version=known.metadata.resource_version,
        )


class _UnreadableError(Exception):
    """A profile cannot be read."""


def _read(body: dict[str, Any]) -> ApplicationProfile:
    try:
        return ApplicationProfile.parse(body)
    except ValidationError as error:
        name = body["metadata"]["name"]
        raise _UnreadableError(
            f"ApplicationProfile {name} cannot be read ({describe(error)}): correct or delete it"
        ) from error
