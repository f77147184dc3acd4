"""Tells why claims wait: an annotation of the claim, and an Event about its Pod.

The operator may not write `status.conditions` of a claim: it has none. So the reason is in the
annotation `partita.dev/status`, the position in the queue in `partita.dev/queue-position`, and when
it is expected to get its slice in `partita.dev/estimated-start`.
A new reason of a claim comes before an update of one, and namespaces take turns. Claims
that no Pod uses come last where a namespace has too many of them.
"""

import asyncio
import json
from collections import defaultdict
from dataclasses import dataclass
from typing import Final

import structlog

from partita.claims.claim_lifecycle import EACH_ITS_CLAIM
from partita.claims.claim_reconciler import ClaimReconciler
from partita.claims.claim_record import WrittenStatus
from partita.constants import (
    ANNOTATION_ESTIMATED_START,
    ANNOTATION_POSITION,
    ANNOTATION_STATUS,
)
from partita.fair_queue import FairQueue
from partita.kube.client import CLAIMS, Kube
from partita.kube.errors import KubernetesError, NotFoundError, UnavailableError
from partita.kube.events import Events
from partita.scheduling.reasons import Reason, WaitingReason, warns
from partita.store.state import State

__all__ = ["MOST_UNUSED", "ClaimStatuses"]

MOST_UNUSED: Final = 100
"""Claims of one namespace that no Pod uses and whose reasons are written in turn. An assumption: a
Pod follows its claim soon, and fewer are made by hand."""

_CONCURRENT: Final = 4
"""Maximum number of concurrent writes. An assumption: more would delay allocations on the same API
server."""
_COLLECT: Final = 0.1
"""Seconds in which changes are collected. A claim that is allocated at once gets no reason."""
_AT_ONCE: Final = 20
"""Changed claims that are looked at without a pause: a cycle may change thousands of reasons."""
_LONGEST: Final = 1024
"""Maximum length of the annotation (characters)."""


@dataclass
class ClaimStatuses:
    """Writes the reasons for which claims wait."""

    kube: Kube
    state: State
    claims: ClaimReconciler
    events: Events

    def __post_init__(self) -> None:
        self._last_events: dict[str, tuple[Reason, set[str]]] = {}
        """The reason of the last Event about the Pods of a claim, and the UIDs of these Pods."""
        self._refused: set[str] = set()
        """UIDs of Pods that were notified that a claim of theirs is allocated for another Pod."""
        self._unused: defaultdict[str, set[str]] = defaultdict(set)
        """UIDs of at most `MOST_UNUSED` claims that no Pod uses, by namespace."""
        self._ready = FairQueue[str]()
        """The claims whose reasons may have changed."""
        self._slots = asyncio.Semaphore(_CONCURRENT)
        self._log = structlog.get_logger().bind(part="claims")

    async def run(self) -> None:
        """Write reasons until cancelled."""
        queue = self.state.queues.claim_statuses
        async with asyncio.TaskGroup() as group:
            while True:
                await self._slots.acquire()
                while not self._ready:
                    uids = await queue.get(_AT_ONCE)
                    await asyncio.sleep(_COLLECT)
                    self._take(uids)
                self._take(queue.take(_AT_ONCE))
                await self.kube.turns.next()
                uid = self._ready.pop()
                # Only now: a claim that was allocated meanwhile needs no reason any more.
                if (written := self.claims.status(uid, self.state.now())) is not None:
                    group.create_task(self._write(uid, written))
                else:
                    self._slots.release()

    def _take(self, uids: set[str]) -> None:
        """Add claims whose reasons may have changed."""
        if not uids:
            return
        for uid in uids:
            if uid not in self.state.claims:
                self._last_events.pop(uid, None)
        self._refused &= self.state.pods.keys()
        for namespace, unused in self._unused.items():
            self._unused[namespace] = unused & self.state.claims.keys()
        for uid in uids & self.state.claims.keys():
            self._refuse_others(uid)
            self._notify_new_pods(uid)
            claim = self.state.claims[uid]
            why = self.claims.why(uid)
            known = why is None or claim.status.startswith(f"{why.reason}: ")
            last = self._is_one_too_many(uid, why)
            self._ready.add(uid, claim.namespace, 2 if last else known)

    def _is_one_too_many(self, uid: str, why: WaitingReason | None) -> bool:
        """Return whether no Pod uses a claim, nor as many others of its namespace as may be."""
        unused = self._unused[self.state.claims[uid].namespace]
        if why is None or why.reason is not Reason.NO_POD:
            unused.discard(uid)
        elif uid not in unused and len(unused) >= MOST_UNUSED:
            return True
        else:
            unused.add(uid)
        return False

    async def _write(self, uid: str, written: WrittenStatus) -> None:
        why, position, expected, _ = written
        claim = self.state.claims.get(uid)
        try:
            if claim is None:
                return
            text = f"{why.reason}: {why.message}"[:_LONGEST]
            known = (claim.status, claim.position, claim.expected) == (text, position, expected)
            self._notify(uid, why, silently=known)
            if known:
                return  # an earlier operator has written it
            notes = {
                ANNOTATION_STATUS: text,
                ANNOTATION_POSITION: None if position is None else str(position),
                ANNOTATION_ESTIMATED_START: json.dumps(expected.dump()) if expected else None,
            }
            meta = {"uid": uid, "annotations": notes}
            body = await self.kube.patch(
                CLAIMS, claim.name, {"metadata": meta}, namespace=claim.namespace
            )
            self.state.apply_claim(body)
            if self.claims.why(uid) != why:  # it may have replaced a newer reason
                self.claims.repeat_status(uid)
        except NotFoundError:
            pass
        except Exception as error:  # noqa: BLE001 - a bug that affects one must not stop the others
            bug = not isinstance(error, KubernetesError)
            self._log.warning("reason not written", uid=uid, error=str(error), exc_info=bug)
            # Without its slot: a namespace can have all writes to its claims refused.
            passes, times = isinstance(error, UnavailableError), self.kube.times
            self.claims.repeat_status(uid, times.retry_after if passes else times.refresh)
        finally:
            self._slots.release()

    def _notify(self, uid: str, why: WaitingReason, *, silently: bool = False) -> None:
        """Write an Event about each Pod of a claim, once for each reason."""
        if why.reason is Reason.SCHEDULING:
            return
        reason, notified = self._last_events.get(uid, (None, set[str]()))
        if reason is not why.reason:
            notified = set()
            self._last_events[uid] = why.reason, notified
        new = [pod for pod in self.state.pods_of(uid) if pod.alive and pod.uid not in notified]
        notified.update(pod.uid for pod in new)
        if silently or why.reason is Reason.ALLOCATED:
            return  # the cycle has written an Event
        emit = self.events.warn if warns(why.reason) else self.events.inform
        for pod in new:
            emit(pod.subject, why.reason, why.message)

    def _notify_new_pods(self, uid: str) -> None:
        """Write the Event about Pods that were created, or seen, after the last one."""
        why, last = self.claims.why(uid), self._last_events.get(uid)
        if why is not None and last is not None and last[0] is why.reason:
            self._notify(uid, why)

    def _refuse_others(self, uid: str) -> None:
        """Write an Event about each Pod that names a claim which another Pod has."""
        claim, pod = self.state.claims[uid], self.claims.pod_of(uid)
        for other in self.claims.record(uid).plan.others:
            if pod is None or other.uid in self._refused:
                continue
            self._refused.add(other.uid)
            self.events.warn(
                other.subject,
                Reason.INVALID_SPEC,
                f"ResourceClaim {claim.name} is allocated for Pod {pod.name}, and a claim is for "
                f"one Pod: {EACH_ITS_CLAIM}",
            )
