"""Writes what is decided about claims: their allocation, the gate of their Pod, and evictions.

The ledger is written before (`process.cycle_writer`). Each write has the version of the claim or
the UID of the Pod as precondition, and the claim is planned again after each. So a write never
relies on a state that has changed meanwhile.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import structlog

from partita.claims.claim_lifecycle import ClaimPlan, Eviction
from partita.claims.claim_reconciler import ClaimReconciler
from partita.claims.ledger_writes import write_ledger
from partita.claims.refused_memories import add_refused
from partita.claims.restored_allocations import restore_entries
from partita.constants import (
    ANNOTATION_ESTIMATED_START,
    ANNOTATION_POSITION,
    ANNOTATION_STATUS,
    CLAIM_FINALIZER,
)
from partita.kube.client import CLAIMS, PODS, Kube
from partita.kube.errors import ConflictError, KubernetesError, NotFoundError, UnavailableError
from partita.kube.events import Events
from partita.pause import Pause
from partita.pods.claim_allocation import claim_allocation, slice_parameters
from partita.scheduling.allocated_claim import allocated_why
from partita.scheduling.claim_request import settings_of
from partita.scheduling.ledger import ServerChange
from partita.scheduling.reasons import WaitingReason
from partita.store.claim_view import ClaimView
from partita.store.state import State
from partita.store.views import PodView

__all__ = ["ClaimAllocations"]

_STEPS: Final = 4
"""Writes of one claim in a row, such as its allocation and its Pod's gate. More are left to the
next reconciliation."""


@dataclass
class ClaimAllocations:
    """Writes the allocations of claims.

    Parameters
    ----------
    plan
        Plans the claim of a job's attempt by the UID of the job, and others by their own.
    """

    kube: Kube
    state: State
    claims: ClaimReconciler
    events: Events
    plan: Callable[[str, datetime], ClaimPlan]

    def __post_init__(self) -> None:
        self._queue = self.state.queues.jobs
        self._log = structlog.get_logger().bind(part="claims")

    async def carry_out(self, uid: str) -> None:
        """Write what the plan of a claim asks for; the UID must be in processing."""
        after = 0.0
        try:
            for _ in range(_STEPS):
                now = self.state.now()
                plan = self.plan(uid, now)
                if not plan.writes:
                    return
                if plan.remember is not None:
                    if not await add_refused(self.kube, self.state, plan.remember, now):
                        self.claims.record(uid).not_remembered = True
                    continue
                if plan.evict is not None and plan.eviction is not None:
                    # The eviction pauses, not the claim: its Pod may be deleted meanwhile.
                    seconds = await self._evict(uid, plan.evict, plan.eviction)
                    self.claims.record(uid).evicted = Pause.of(self.state.now(), seconds)
                    return
                if plan.restore is not None:
                    await self._restore(uid, plan.restore)
                    continue
                await self._write(uid, plan)
        except ConflictError:
            after = await self._read_again(uid)
        except NotFoundError:
            after = self.kube.times.retry_after  # the watch reports the deletion
        except KubernetesError as error:
            self._log.warning("claim not written", uid=uid, error=str(error))
            after = self.kube.times.retry_after
        except Exception:  # noqa: BLE001 - a bug that affects one claim must not stop the others
            self._log.exception("claim not written", uid=uid)
            after = self.kube.times.retry_after
        finally:
            self._queue.done(uid, after)

    async def _write(self, uid: str, plan: ClaimPlan) -> None:
        claim = self.state.claims[self.state.holder(uid)]
        if plan.allocate:
            await self._allocate(claim, announce=plan.announce)
        elif plan.take_back:
            self._log.info("taking back", claim=claim.key, unbound=plan.missed)
            # The API server allows no reservation without an allocation.
            cleared = {"allocation": None, "reservedFor": None}
            body = await self._patch(claim, {"status": cleared}, "status")
            self.state.apply_claim(body)
        elif plan.ungate is not None:
            await self._remove_gate(plan.ungate)

    async def _allocate(self, claim: ClaimView, *, announce: bool) -> None:
        allocated = self.state.allocated(claim.uid)
        servers = [self.state.servers[name] for name in allocated]
        if announce:
            why = allocated_why(servers, next(iter(allocated.values())))
            if (prepared := _prepared(claim, why)) is not None:
                self.state.apply_claim(await self._patch(claim, {"metadata": prepared}))
                return  # it may have been deleted meanwhile, so it is planned again
        partition = self.state.partitions[servers[0].spec.partition]
        settings = settings_of(next(iter(allocated.values())), self.state)
        priority = partition.spec.effective_priority(claim.namespace, settings.priority)
        slices = [
            slice_parameters(
                entry,
                server,
                framework=settings.framework,
                yields=priority < 0,
                oversubscription=partition.spec.sharing.oversubscription,
            )
            for entry, server in zip(allocated.values(), servers, strict=True)
        ]
        node = servers[0].status.node
        allocation = claim_allocation(claim.uid, claim.request, slices, node, self.state.now())
        body = await self._patch(claim, {"status": {"allocation": allocation}}, "status")
        self.state.apply_claim(body)

    async def _remove_gate(self, pod: PodView) -> None:
        others = [{"name": gate} for gate in pod.other_gates]
        patch = {"metadata": {"uid": pod.uid}, "spec": {"schedulingGates": others or None}}
        self.state.apply_pod(await self.kube.patch(PODS, pod.name, patch, namespace=pod.namespace))

    async def _restore(self, uid: str, pod: PodView) -> None:
        """Write the entries of a claim in use to the ledger again, or let its Pod end."""
        claim = self.state.claims[uid]
        now = self.state.now()
        asks = self.claims.grown_request(uid)
        problem = await restore_entries(self.kube, self.state, claim, pod, asks=asks, now=now)
        if problem:
            said = f"the allocation of its claim is not in the ledger, and {problem}"
            self.claims.end(uid, Eviction("NotInLedger", said))
        else:
            self._log.warning("allocation restored", claim=claim.key)

    async def _evict(self, uid: str, pod: PodView, eviction: Eviction) -> float:
        """Evict a Pod; return the seconds until the next try."""
        subject = pod.subject
        self.state.apply_pod(await self.kube.get(PODS, pod.name, pod.namespace))
        seen = self.state.pods.get(pod.uid)
        if seen is None or not seen.alive or seen.deleting:
            return 0.0  # it has ended meanwhile: an eviction would delete it with its logs
        try:
            grace = None if eviction.grace is None else min(eviction.grace, pod.grace)
            await self.kube.evict(pod.name, pod.namespace, uid=pod.uid, grace=grace)
        except UnavailableError as error:
            if not _OF_A_BUDGET.search(error.message):
                raise
            self.claims.not_evicted(uid, self.state.now())
            self.events.warn(
                subject, "NotEvicted", f"{eviction.message}, but a budget protects it: {error}"
            )
            for name, entry in self.state.allocated(uid).items():
                marked = entry.model_copy(update={"not_evicted": error.message[:_LONGEST]})
                change = ServerChange(mark={uid: marked})
                await write_ledger(self.kube, self.state, name, change, lambda *_: True)
            return self.kube.times.evict_again
        self._log.info("evicting pod", pod=pod.key, reason=eviction.reason)
        self.events.warn(subject, eviction.reason, f"it is evicted: {eviction.message}")
        return self.kube.times.retry_after

    async def _patch(
        self, claim: ClaimView, patch: dict[str, Any], subresource: str = ""
    ) -> dict[str, Any]:
        meta = {**patch.get("metadata", {}), "uid": claim.uid}
        return await self.kube.patch(
            CLAIMS,
            claim.name,
            {**patch, "metadata": meta},
            namespace=claim.namespace,
            subresource=subresource,
            resource_version=str(claim.version),
        )

    async def _read_again(self, uid: str) -> float:
        """Read a claim that was written by others meanwhile; return when to plan it again.

        If it was not, its Pod or its profile was, of which the watch has yet to tell.
        """
        holder = self.state.holder(uid)
        if (claim := self.state.claims.get(holder)) is None:
            return 0.0
        try:
            self.state.apply_claim(await self.kube.get(CLAIMS, claim.name, claim.namespace))
        except KubernetesError as error:
            self._log.warning("claim not read", claim=claim.key, error=str(error))
        return self.kube.times.retry_after if self.state.claims.get(holder) is claim else 0.0


def _prepared(claim: ClaimView, why: WaitingReason) -> dict[str, Any] | None:
    """Return the metadata that a claim needs before its allocation, or None if it has it."""
    said = f"{why.reason}: {why.message}"
    if CLAIM_FINALIZER in claim.finalizers and claim.status == said:
        return None
    gone = dict.fromkeys((ANNOTATION_POSITION, ANNOTATION_ESTIMATED_START))
    notes = {ANNOTATION_STATUS: said, **gone}
    finalizers = list(dict.fromkeys((*claim.finalizers, CLAIM_FINALIZER)))
    return {"finalizers": finalizers, "annotations": notes}


_LONGEST = 512
"""Characters of what is said of an eviction."""
_OF_A_BUDGET = re.compile("disruption ?budget", re.IGNORECASE)
"""Finds in an answer that a PodDisruptionBudget protects the Pod (429), or that several do (500)
(pkg/registry/core/pod/storage/eviction.go in k8s.io/kubernetes). An API server that has too many
requests also answers 429."""
