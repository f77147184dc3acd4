"""ApplicationProfiles of simulated agents, computed with the code of the real agent."""

import asyncio
from datetime import UTC, datetime
from itertools import pairwise
from math import ceil
from typing import Final

import structlog

from partita.agent.usage.job_usage import PROFILE_STEPS, TracePoint, UsageTrace
from partita.agent.usage.profiles import measurement, merge
from partita.constants import GROUP, VERSION
from partita.kube.errors import KubernetesError
from partita.models.profile import (
    ApplicationProfile,
    ApplicationProfileSpec,
    Environment,
    preferred,
    profile_name,
)
from partita_testcluster.nodes.api import APIServer
from partita_testcluster.nodes.gpu import Ended, UsageSample

__all__ = ["SimulatedProfiles", "uses"]

log = structlog.get_logger(__name__)

_SAMPLES: Final = 4 * PROFILE_STEPS
"""Samples of a run: several for each step of the profile."""


def uses(ended: Ended) -> list[TracePoint]:
    """Sample a run as an agent does, and divide it into the equal steps of a profile."""
    start = ended.history[0].time
    interval = max(ended.time - start, 1e-3) / _SAMPLES
    trace = UsageTrace(interval=interval)
    for now, following in pairwise([*ended.history, UsageSample(ended.time, 0, 0.0)]):
        for index in range(ceil((following.time - now.time) / interval)):
            trace.add(now.time + index * interval, TracePoint(now.memory, now.utilisation))
    return trace.steps(start, ended.time)


class SimulatedProfiles:
    """Merges runs into ApplicationProfiles.

    Parameters
    ----------
    api
        The API server.
    """

    def __init__(self, api: APIServer) -> None:
        self._api = api
        self._writing = asyncio.Lock()  # runs of one application may end together

    async def keep(
        self, namespace: str, application: str, ended: Ended, where: Environment, *, pod_uid: str
    ) -> None:
        """Merge a successful run; its duration is in virtual seconds."""
        duration = max(1.0, ended.time - ended.history[0].time)
        new = measurement(uses(ended), duration, where, ended.beside, pod_uid=pod_uid)
        path = f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/applicationprofiles"
        try:
            async with self._writing:
                items = map(ApplicationProfile.parse, (await self._api.call("GET", path))["items"])
                found = preferred(p for p in items if p.spec.application == application)
                known = found.spec if found else ApplicationProfileSpec(application=application)
                now = {"last_run": datetime.now(UTC)}
                spec = merge(known, new).model_copy(update=now).dump()
                if found is None:
                    body = {
                        "apiVersion": f"{GROUP}/{VERSION}",
                        "kind": "ApplicationProfile",
                        "metadata": {"name": profile_name(application)},
                        "spec": spec,
                    }
                    await self._api.call("POST", path, body)
                else:
                    patch = {"spec": {name: spec[name] for name in ("measurements", "lastRun")}}
                    await self._api.call("PATCH", f"{path}/{found.metadata.name}", patch)
        except (KubernetesError, ValueError) as error:  # pydantic's errors are ValueErrors
            log.warning("run not merged", application=application, error=str(error))
