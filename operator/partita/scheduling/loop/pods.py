"""Makes and deletes the jobs' Pods."""

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Any

import structlog

from partita.constants import DEVICE_RESOURCE_PREFIX
from partita.kube.client import PODS, Kube
from partita.kube.errors import (
    AlreadyExistsError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    KubernetesError,
    NotFoundError,
)
from partita.kube.events import Events
from partita.models import SharedGPUJob
from partita.pods.grant import Grant
from partita.pods.job import build_job_pod
from partita.scheduling.jobs import Refusal
from partita.scheduling.reasons import Reason, Why
from partita.scheduling.state import State
from partita.scheduling.views import PodView

__all__ = ["Created", "JobPods"]

_CONCURRENT = 32
"""Pods made at a time."""
_FORBIDDEN_FOR = timedelta(seconds=30)
"""Before a Pod that a quota or a policy of the cluster refused is tried again."""


class Created(Enum):
    """What became of a Pod that was to be made."""

    DONE = auto()
    NAME_TAKEN = auto()
    """Somebody else's Pod has its name."""
    LATER = auto()
    """The API server could not be had."""


@dataclass(frozen=True, slots=True)
class JobPods:
    """The one maker of job Pods."""

    kube: Kube
    state: State
    events: Events
    slots: asyncio.Semaphore

    @classmethod
    def of(cls, kube: Kube, state: State, events: Events) -> "JobPods":
        """Make one that has a bounded number of requests under way."""
        return cls(kube, state, events, asyncio.Semaphore(_CONCURRENT))

    async def create(self, job: SharedGPUJob, grant: Grant, now: datetime) -> Created | Refusal:
        """Make the Pod of a job's attempt. Asked twice, it is made once.

        Returns
        -------
        Created or Refusal
            A `Refusal` when only the user, or time, can help.
        """
        meta = job.metadata
        made = build_job_pod(job, grant)
        log = structlog.get_logger().bind(part="pods", job=job.key, attempt=grant.attempt)
        async with self.slots:
            try:
                body = await self.kube.create(PODS, made.manifest)
            except AlreadyExistsError:
                return await self._take_up(job, made.manifest)
            except InvalidError as error:
                log.info("pod refused", error=error.message)
                said = f"the API server refuses its Pod: {error.message}; correct spec.template"
                return Refusal(Why(Reason.INVALID_SPEC, said), meta.generation)
            except (ForbiddenError, NotFoundError) as error:
                log.info("pod forbidden", error=error.message)
                said = f"the cluster does not admit its Pod: {error.message}"
                why = Why(Reason.POD_FORBIDDEN, said)
                return Refusal(why, meta.generation, now + _FORBIDDEN_FOR)
            except KubernetesError as error:
                log.warning("pod not made", error=str(error))
                return Created.LATER
        self.state.apply_pod(body)
        for name in made.overridden:
            self.events.warn(
                job, "VariableOverridden", f"the template sets {name}; Partita's value is used"
            )
        for notice in made.notices:
            self.events.warn(job, "TemplateAdjusted", notice)
        return Created.DONE

    async def _take_up(self, job: SharedGPUJob, manifest: dict[str, Any]) -> Created:
        """Look at the Pod that has the name: ours from before a crash, a stray, or another's."""
        log = structlog.get_logger().bind(part="pods", job=job.key)
        name = manifest["metadata"]["name"]
        try:
            body = await self.kube.get(PODS, name, job.metadata.namespace)
            view = PodView.parse(body)
            if view is None or view.owner_uid != job.metadata.uid:
                log.warning("pod name taken", pod=name)
                return Created.NAME_TAKEN
            if _devices(body) != _devices(manifest):
                # A request that we gave up came through, for GPUs that were given back since.
                log.warning("deleting a stray pod", pod=name)
                await self.kube.delete(
                    PODS, name, job.metadata.namespace, uid=body["metadata"]["uid"]
                )
                return Created.LATER
        except KubernetesError as error:
            log.warning("pod not taken up", pod=name, error=str(error))
            return Created.LATER
        self.state.apply_pod(body)
        return Created.DONE

    async def delete(self, pod: PodView, *, grace: int | None) -> None:
        """Delete a Pod, and only this one.

        Parameters
        ----------
        grace
            Seconds that it has to terminate; None for as long as it asks for.
        """
        async with self.slots:
            try:
                await self.kube.delete(PODS, pod.name, pod.namespace, uid=pod.uid, grace=grace)
            except (NotFoundError, ConflictError):
                pass  # it is gone, or another has its name
            except KubernetesError as error:
                structlog.get_logger().warning("pod not deleted", pod=pod.key, error=str(error))
                self.state.dirty.jobs(pod.owner_uid)


def _devices(pod: dict[str, Any]) -> set[str]:
    """Return the resources of our GPUs that a Pod asks for."""
    containers = (pod.get("spec") or {}).get("containers") or []
    limits = ((c.get("resources") or {}).get("limits") or {} for c in containers)
    return {name for entry in limits for name in entry if name.startswith(DEVICE_RESOURCE_PREFIX)}
