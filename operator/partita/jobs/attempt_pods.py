"""Creates and deletes the claims and Pods of jobs' attempts.

The claim has no allocation and the Pod has a scheduling gate until the ledger has both, as for
every other Pod with a claim (`claims.claim_allocations`). So whatever rejects them does it while no
GPU is held. Both are created by name: a repeated call creates nothing
twice, and needs not know what became of an earlier one.
"""

import asyncio
import re
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

import structlog

from partita.constants import ANNOTATION_TEMPLATE
from partita.kube.client import CLAIMS, PODS, Kind, Kube
from partita.kube.errors import (
    AlreadyExistsError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    KubernetesError,
    NotFoundError,
    WebhookError,
)
from partita.kube.events import Events
from partita.kube.namespace_slots import NamespaceSlots
from partita.models import SharedGPUJob
from partita.pods.allocation import JobAllocation
from partita.pods.job_pod import JobPod, build_job_pod, job_labels, pod_name
from partita.pods.own_claims import build_own_claim, own_claim_name
from partita.scheduling.reasons import Reason, WaitingReason
from partita.store.claim_view import ClaimView
from partita.store.state import State
from partita.store.views import PodView

__all__ = ["AttemptPods", "NotCreated"]

Json = dict[str, Any]

_PODS: Final = (32, 8)
"""Maximum number of Pods that are created at the same time, and of those that are deleted: apart,
because one may be deleted while another is created in its place. Fewer are of one namespace: its
admission webhook may be slow, and others' is not."""
_CLAIMS: Final = (8, 4)
"""Maximum number of claims that are deleted at the same time, and of those of one namespace. An
assumption: deletions are not urgent, and should not take the connections that allocations and the
Lease need."""


_POLICY = re.compile(
    r"(ValidatingAdmissionPolicy|MutatingAdmissionPolicy|admission webhook) ['\"]([^'\"]+)['\"]"
)
"""Finds in the API server's message what denied an object. The status code does not identify such a
denial: for a policy it is 422 if its `reason` is unset
(https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/)."""


class NotCreated(Enum):
    """Why a claim or a Pod is not there, if the API server did not reject it."""

    NAME_TAKEN = auto()
    """An object of another owner has the name."""
    RETRY_LATER = auto()
    """A retry may succeed."""


@dataclass(frozen=True, slots=True)
class AttemptPods:
    """Creates and deletes the claims and Pods of jobs; no other component does."""

    kube: Kube
    state: State
    events: Events
    _creations: NamespaceSlots = field(default_factory=lambda: NamespaceSlots(*_PODS))
    _pod_deletions: NamespaceSlots = field(default_factory=lambda: NamespaceSlots(*_PODS))
    _deletions: NamespaceSlots = field(default_factory=lambda: NamespaceSlots(*_CLAIMS))

    async def create(
        self, job: SharedGPUJob, wanted: JobAllocation, threads: int
    ) -> PodView | NotCreated | WaitingReason:
        """Create the claim and the Pod of an attempt, unless they exist; return the Pod.

        Parameters
        ----------
        wanted
            The allocation that the Pod is created for.
        threads
            Percent of the GPUs' threads that the claim asks for.

        Returns
        -------
        PodView or NotCreated or WaitingReason
            A `WaitingReason` if the API server rejects the claim or the Pod.
        """
        claim = _claim(job, wanted, threads)
        made = build_job_pod(job, wanted)
        async with self._creations.of(job.metadata.namespace):
            problem, found = await asyncio.gather(
                self._create_claim(job, claim), self._create_pod(job, made)
            )
        return found if problem is None else problem

    async def _create_claim(
        self, job: SharedGPUJob, claim: Json
    ) -> NotCreated | WaitingReason | None:
        """Create a claim; return None if it is there."""
        name, namespace = claim["metadata"]["name"], claim["metadata"]["namespace"]
        known = self.state.claim_named(namespace, name)
        if known is None or known.deleting:
            try:
                body: Json | None = await self.kube.create(CLAIMS, claim)
            except AlreadyExistsError:
                body = await self._read(CLAIMS, name, namespace)
            except KubernetesError as error:
                return self._failed(job, error, "ResourceClaim")
            known = None
            if body is not None:
                self.state.apply_claim(body)
                if (known := ClaimView.parse(body)) is None:
                    return NotCreated.NAME_TAKEN  # somebody's claim of other devices
        if known is not None and not known.deleting:
            if known.user != job.metadata.uid:
                return NotCreated.NAME_TAKEN
            if known.allocation is None:
                return None
            # The ledger has lost what it was allocated for.
            await self.delete(known)
        return NotCreated.RETRY_LATER

    async def _create_pod(
        self, job: SharedGPUJob, made: JobPod
    ) -> PodView | NotCreated | WaitingReason:
        meta, uid = made.manifest["metadata"], job.metadata.uid
        name, template = meta["name"], meta["annotations"][ANNOTATION_TEMPLATE]
        found = next((p for p in self.state.pods_of(uid) if p.name == name and p.alive), None)
        if found is None:
            try:
                body = await self.kube.create(PODS, made.manifest)
            except AlreadyExistsError:
                if (there := await self._read(PODS, name, meta["namespace"])) is None:
                    return NotCreated.RETRY_LATER
                found = PodView.parse(there)
                if found is None or found.owner_uid != uid:
                    return NotCreated.NAME_TAKEN
                self.state.apply_pod(there)
            except KubernetesError as error:
                return self._failed(job, error, "Pod")
            else:
                self._report(job, made)
                self.state.apply_pod(body)
                found = PodView.parse(body)
        if found is not None and not found.deleting:
            if found.alive and found.template_hash == template:
                return found
            # It was created for other GPUs or another spec, or has ended. It has had no GPU.
            await self.delete(found)
        return NotCreated.RETRY_LATER

    async def _read(self, kind: Kind, name: str, namespace: str) -> Json | None:
        try:
            return await self.kube.get(kind, name, namespace)
        except KubernetesError:
            return None

    def _failed(
        self, job: SharedGPUJob, error: KubernetesError, kind: str
    ) -> NotCreated | WaitingReason:
        log = structlog.get_logger().bind(part="pods", job=job.key, kind=kind)
        if (why := _refused(error, kind)) is None:
            log.warning("not created", error=str(error))
            return NotCreated.RETRY_LATER
        log.info("refused", reason=why.reason, error=error.message)
        return why

    def _report(self, job: SharedGPUJob, made: JobPod) -> None:
        for name in made.overridden:
            self.events.warn(
                job, "VariableOverridden", f"the template sets {name}; Partita's value is used"
            )
        for notice in made.notices:
            self.events.warn(job, "TemplateAdjusted", notice)

    async def delete(self, one: PodView | ClaimView, grace: int | None = None) -> bool:
        """Delete a Pod or a claim, by its UID; return whether this is done.

        Parameters
        ----------
        grace
            Grace period of a Pod in seconds; None for its own.
        """
        kind, slots, wait = CLAIMS, self._deletions, None
        log = structlog.get_logger().bind(object=one.key)
        if isinstance(one, PodView):
            kind, slots, wait = PODS, self._pod_deletions, grace
            log.info("ending pod")
        try:
            async with slots.of(one.namespace):
                await self.kube.delete(kind, one.name, one.namespace, uid=one.uid, grace=wait)
        except (NotFoundError, ConflictError):
            pass  # it is gone, or another object has its name
        except KubernetesError as error:
            log.warning("not deleted", kind=kind.kind, error=str(error))
            return False
        return True


def _claim(job: SharedGPUJob, wanted: JobAllocation, threads: int) -> Json:
    return build_own_claim(
        own_claim_name(pod_name(job.metadata.name, wanted.attempt)),
        job.metadata.namespace,
        job.spec.partition,
        memory=wanted.memory,
        threads=threads,
        count=len(wanted.uuids),
        labels=job_labels(job, wanted.attempt),
        owner=job.owner_reference(),
    )


def _refused(error: KubernetesError, kind: str) -> WaitingReason | None:
    """Return why the API server rejects an object of a job; None if the error is not a rejection.

    Parameters
    ----------
    kind
        The kind of the object, for the message.
    """
    said = error.message
    if isinstance(error, WebhookError):
        return WaitingReason(Reason.WEBHOOK_FAILED, f"its {kind} cannot be created: {said}")
    if not isinstance(error, InvalidError | ForbiddenError | NotFoundError):
        return None
    if found := _POLICY.search(said):
        denied = f"{found[1]} {found[2]} does not admit its {kind}: {said}"
        return WaitingReason(Reason.POD_FORBIDDEN, denied)
    if isinstance(error, InvalidError):
        said = f"the API server refuses its {kind}: {said}; correct spec.template"
        return WaitingReason(Reason.INVALID_SPEC, said)
    return WaitingReason(Reason.POD_FORBIDDEN, f"the cluster does not admit its {kind}: {said}")
