"""Creates and deletes the claims of jobs' attempts."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import structlog

from partita.commit.creation import Created, Later, refused
from partita.informer.own_claims import OwnClaim
from partita.informer.state import State
from partita.kube.client import CLAIMS, Kube
from partita.kube.errors import AlreadyExistsError, ConflictError, KubernetesError, NotFoundError
from partita.kube.own_claims import NameTakenError, create_allocated
from partita.models import Allocation, GPUServer, SharedGPUJob
from partita.pods.allocation import JobAllocation
from partita.pods.claim_allocation import slice_parameters
from partita.pods.job_pod import job_labels, job_owner, pod_name
from partita.pods.own_claims import build_own_claim, own_claim_name
from partita.reconcile.reasons import Why

__all__ = ["DELETIONS", "JobClaims"]

DELETIONS = 8
"""Maximum number of claims that are deleted at the same time. An assumption: deletions are not
urgent, and should not take the connections that allocations and the Lease need."""


@dataclass(frozen=True, slots=True)
class JobClaims:
    """Creates and deletes the claims of jobs; no other component does.

    Parameters
    ----------
    now
        The clock.
    """

    kube: Kube
    state: State
    now: Callable[[], datetime]
    _deletions: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(DELETIONS))

    async def create(
        self,
        job: SharedGPUJob,
        wanted: JobAllocation,
        allocated: Mapping[str, Allocation],
        servers: Sequence[GPUServer],
    ) -> Created | Later | Why:
        """Create the claims of an attempt and allocate them. Repeated calls do it once.

        Parameters
        ----------
        wanted
            The allocation of its Pod.
        allocated
            Its entries in the ledger, by GPUServer.
        servers
            These GPUServers, in the same order.

        Returns
        -------
        Created or Later or Why
            A `Why` if the API server rejects a claim.
        """
        entries = zip(allocated.values(), servers, strict=True)
        made = [self._create(job, wanted, entry, server) for entry, server in entries]
        results = await asyncio.gather(*made)
        return next((r for r in results if r is not Created.DONE), Created.DONE)

    async def _create(
        self, job: SharedGPUJob, wanted: JobAllocation, entry: Allocation, server: GPUServer
    ) -> Created | Later | Why:
        claim = _claim(job, wanted.attempt, entry, server)
        name, namespace = claim["metadata"]["name"], claim["metadata"]["namespace"]
        known = self.state.own_claims.named(namespace, name)
        if (
            known is not None
            and known.owner_uid == job.metadata.uid
            and known.allocated
            and not known.deleting
        ):
            return Created.DONE
        parameters = slice_parameters(
            entry,
            server,
            framework=job.spec.framework,
            oversubscription=wanted.oversubscription,
            yields=wanted.yields,
            visible_gpus=wanted.uuids if len(wanted.uuids) > 1 else (),
        )
        log = structlog.get_logger().bind(part="claims", job=job.key, claim=name)
        try:
            body = await create_allocated(
                self.kube, claim, (parameters,), server.status.node, self.now()
            )
        except NameTakenError as error:
            log.warning("claim not made", error=str(error))
            return Created.NAME_TAKEN
        except KubernetesError as error:
            if (why := refused(error, "ResourceClaim")) is None:
                log.warning("claim not made", error=str(error))
                return Later(str(error))
            log.info("claim refused", reason=why.reason, error=error.message)
            return why
        self.state.apply_claim(body)
        return Created.DONE

    async def would_be_refused(
        self,
        job: SharedGPUJob,
        attempt: int,
        allocated: Mapping[str, Allocation],
        servers: Sequence[GPUServer],
    ) -> Later | Why | None:
        """Check by a dry run whether the API server would accept the claims of an attempt.

        Returns
        -------
        Later or Why or None
            None if they would be accepted, including by quota and admission.
        """
        for entry, server in zip(allocated.values(), servers, strict=True):
            try:
                await self.kube.create(CLAIMS, _claim(job, attempt, entry, server), dry_run=True)
            except AlreadyExistsError:
                continue
            except KubernetesError as error:
                return refused(error, "ResourceClaim") or Later(str(error))
        return None

    async def delete(self, claim: OwnClaim) -> bool:
        """Delete a claim, by its UID; return whether this is done."""
        try:
            async with self._deletions:
                await self.kube.delete(CLAIMS, claim.name, claim.namespace, uid=claim.uid)
        except (NotFoundError, ConflictError):
            pass  # it is gone, or another claim has its name
        except KubernetesError as error:
            structlog.get_logger().warning("claim not deleted", claim=claim.key, error=str(error))
            return False
        return True


def _claim(job: SharedGPUJob, attempt: int, entry: Allocation, server: GPUServer) -> dict[str, Any]:
    return build_own_claim(
        own_claim_name(pod_name(job.metadata.name, attempt), server.metadata.name),
        job.metadata.namespace,
        job.spec.partition,
        entry,
        labels=job_labels(job, attempt),
        owner=job_owner(job),
    )
