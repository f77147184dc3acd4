"""Counts the steps of claims: allocated, started, grown, released, taken back, refused."""

from dataclasses import dataclass
from datetime import datetime

from partita.informer.state import State
from partita.models import Allocation
from partita.models.device_class import class_target
from partita.operator.metrics.tally import Tally
from partita.reconcile.reasons import stalled

__all__ = ["ClaimSteps"]


@dataclass(slots=True)
class _Seen:
    """What was seen of a claim last."""

    partition: str
    entry: Allocation | None
    started: bool
    """Whether a container has run since its allocation."""
    refused: str
    """The reason for which it cannot be allocated as it is written; empty if none."""
    waits_since: datetime


class ClaimSteps:
    """Compares each claim with what was seen of it before.

    Steps before a claim is first seen are not counted: the operator that made them has counted
    them.

    Parameters
    ----------
    tally
        Gets the counts.
    """

    def __init__(self, state: State, tally: Tally) -> None:
        self._state = state
        self._tally = tally
        self._seen: dict[str, _Seen] = {}

    def seen(self, uid: str, now: datetime) -> None:
        """Count what has happened to a claim since this was called last."""
        state = self._state
        claim, allocated = state.claims.get(uid), state.allocated(uid)
        old = self._seen.get(uid)
        if claim is None and not allocated:
            if old is not None:
                self._ended(old)
                del self._seen[uid]
            return
        server, entry = next(iter(allocated.items()), ("", None))
        started_at = self._started_at(uid, entry)
        reason = claim.status.partition(": ")[0] if claim is not None else ""
        new = _Seen(
            self._partition(uid, server),
            entry,
            started_at is not None,
            reason if entry is None and stalled(reason) else "",
            old.waits_since if old else claim.created if claim else now,
        )
        self._seen[uid] = new
        if old is None:
            if new.refused:
                self._count(new, "Refused")
            return
        if old.entry is not None and (entry is None or entry.since != old.entry.since):
            self._ended(old)
            new.waits_since = now
        self._compare(old, new, started_at)

    def _compare(self, old: _Seen, new: _Seen, started_at: datetime | None) -> None:
        entry, before = new.entry, old.entry
        if new.refused and new.refused != old.refused:
            self._count(new, "Refused")
        if entry is None:
            return
        same = before is not None and before.since == entry.since
        if not same:
            self._count(new, "Allocated")
            self._tally.took(
                self._tally.claim_queued_time, new.partition, new.waits_since, entry.since
            )
        elif before is not None and entry.memory > before.memory:
            self._count(new, "Grown")
        if started_at is not None and not (same and old.started):
            self._count(new, "Started")
            self._tally.took(self._tally.claim_start_time, new.partition, entry.since, started_at)

    def _ended(self, old: _Seen) -> None:
        if old.entry is not None:
            self._count(old, "Released" if old.started else "TakenBack")

    def _started_at(self, uid: str, entry: Allocation | None) -> datetime | None:
        """Return when the first container of a claim's Pod ran; None if none has."""
        if entry is None:
            return None
        pods = (pod for pod in self._state.pods_of(uid) if pod.uid == entry.pod_uid)
        pod = next(pods, None)
        return pod.outcome.started_at if pod is not None else None

    def _partition(self, uid: str, server: str) -> str:
        claim = self._state.claims.get(uid)
        if claim is None:
            return self._state.servers[server].spec.partition
        target = class_target(claim.device_class, self._state.partitions)
        return target.partition if target is not None else ""

    def _count(self, seen: _Seen, step: str) -> None:
        if seen.partition in self._state.partitions:
            self._tally.count(self._tally.claim_steps, seen.partition, step)
