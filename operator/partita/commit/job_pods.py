"""Creates and deletes the jobs' Pods."""

import asyncio
from dataclasses import dataclass
from typing import Any

import structlog

from partita.commit.creation import Created, Later, refused
from partita.informer.state import State
from partita.informer.views import PodView
from partita.kube.client import PODS, Kube
from partita.kube.errors import (
    AlreadyExistsError,
    ConflictError,
    KubernetesError,
    NotFoundError,
)
from partita.kube.events import Events
from partita.models import SharedGPUJob
from partita.pods.allocation import JobAllocation
from partita.pods.job_pod import build_job_pod, pod_name
from partita.pods.own_claims import own_claims
from partita.reconcile.reasons import Why

__all__ = ["JobPods"]

_CONCURRENT = 32
"""Maximum number of concurrent Pod requests."""


@dataclass(frozen=True, slots=True)
class JobPods:
    """Creates and deletes job Pods; no other component does."""

    kube: Kube
    state: State
    events: Events
    slots: asyncio.Semaphore

    @classmethod
    def of(cls, kube: Kube, state: State, events: Events) -> "JobPods":
        """Return an instance with a limited number of concurrent requests."""
        return cls(kube, state, events, asyncio.Semaphore(_CONCURRENT))

    async def create(self, job: SharedGPUJob, grant: JobAllocation) -> Created | Later | Why:
        """Create the Pod of a job's attempt. Repeated calls create it once.

        Returns
        -------
        Created or Later or Why
            A `Why` if the API server rejects the Pod.
        """
        made = build_job_pod(job, grant)
        log = structlog.get_logger().bind(part="pods", job=job.key, attempt=grant.attempt)
        async with self.slots:
            try:
                body = await self.kube.create(PODS, made.manifest, once=True)
            except AlreadyExistsError:
                return await self._take_up(job, made.manifest)
            except KubernetesError as error:
                if (why := refused(error, "Pod")) is None:
                    log.warning("pod not made", error=str(error))
                    return Later(str(error), unsure=error.unsure)
                log.info("pod refused", reason=why.reason, error=error.message)
                return why
        self.state.apply_pod(body)
        for name in made.overridden:
            self.events.warn(
                job, "VariableOverridden", f"the template sets {name}; Partita's value is used"
            )
        for notice in made.notices:
            self.events.warn(job, "TemplateAdjusted", notice)
        return Created.DONE

    async def would_be_refused(self, job: SharedGPUJob, grant: JobAllocation) -> Later | Why | None:
        """Check by a dry run whether the API server would accept the Pod of an attempt.

        Returns
        -------
        Later or Why or None
            None if it would be accepted, including by quota and admission.
        """
        async with self.slots:
            try:
                await self.kube.create(PODS, build_job_pod(job, grant).manifest, dry_run=True)
            except AlreadyExistsError:
                return None
            except KubernetesError as error:
                return refused(error, "Pod") or Later(str(error))
        return None

    async def find(self, job: SharedGPUJob, attempt: int) -> bool:
        """Read the Pod of an attempt by its name; return whether it exists.

        Raises
        ------
        KubernetesError
            If the Pod could not be read.
        """
        meta = job.metadata
        try:
            body = await self.kube.get(PODS, pod_name(meta.name, attempt), meta.namespace)
        except NotFoundError:
            pass
        else:
            self.state.apply_pod(body)
        return any(pod.attempt == attempt for pod in self.state.pods_of(meta.uid))

    async def _take_up(self, job: SharedGPUJob, manifest: dict[str, Any]) -> Created | Later:
        """Check the existing Pod of the name: the attempt's own, a stray, or of another owner."""
        log = structlog.get_logger().bind(part="pods", job=job.key)
        name = manifest["metadata"]["name"]
        try:
            body = await self.kube.get(PODS, name, job.metadata.namespace)
            view = PodView.parse(body)
            if view is None or view.owner_uid != job.metadata.uid:
                log.warning("pod name taken", pod=name)
                return Created.NAME_TAKEN
            if own_claims(body) != own_claims(manifest):
                # An abandoned request took effect, for GPUs that were released since.
                log.warning("deleting a stray pod", pod=name)
                await self.kube.delete(
                    PODS, name, job.metadata.namespace, uid=body["metadata"]["uid"]
                )
                return Later(f"a Pod {name} for other GPUs is still there")
        except KubernetesError as error:
            log.warning("pod not taken up", pod=name, error=str(error))
            return Later(str(error), unsure=True)  # it may be the attempt's own
        self.state.apply_pod(body)
        return Created.DONE

    async def delete(self, pod: PodView, *, grace: int | None) -> None:
        """Delete a Pod, by its UID.

        Parameters
        ----------
        grace
            Grace period in seconds; None for the Pod's own.
        """
        async with self.slots:
            try:
                await self.kube.delete(PODS, pod.name, pod.namespace, uid=pod.uid, grace=grace)
            except (NotFoundError, ConflictError):
                pass  # it is gone, or another Pod has its name
            except KubernetesError as error:
                structlog.get_logger().warning("pod not deleted", pod=pod.key, error=str(error))
                self.state.queues.jobs.add(self.state.job_of(pod))
