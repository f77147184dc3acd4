"""Counts the steps of claims: allocated, started, grown, released, taken back, refused."""

from dataclasses import dataclass
from datetime import datetime

from partita.models import Allocation
from partita.models.device_class import class_target
from partita.process.metrics.tally import Tally
from partita.scheduling.reasons import stalled
from partita.store.state import State

__all__ = ["ClaimSteps"]


@dataclass(slots=True)
class _Seen:
    """What was seen of a claim last."""

    partition: str
    entry: Allocation | None
    started: datetime | None
    """When the first container of its Pod ran; None if none has since its allocation."""
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
        old, new = self._seen.pop(uid, None), self._look(uid, now)
        if new is not None:
            self._seen[uid] = new
            if new.refused and (old is None or new.refused != old.refused):
                self._count(new, "Refused")
        if old is None:
            return
        before, entry = old.entry, new.entry if new is not None else None
        same = before is not None and entry is not None and before.since == entry.since
        if before is not None and not same:
            self._count(old, "Released" if old.started else "TakenBack")
        if new is None:
            return
        new.waits_since = now if before is not None and not same else old.waits_since
        if entry is None:
            return
        tally, partition = self._tally, new.partition
        if not same:
            self._count(new, "Allocated")
            tally.took(tally.claim_queued_time, partition, new.waits_since, entry.since)
        elif before is not None and entry.memory > before.memory:
            self._count(new, "Grown")
        if new.started is not None and not (same and old.started):
            self._count(new, "Started")
            tally.took(tally.claim_start_time, partition, entry.since, new.started)

    def _look(self, uid: str, now: datetime) -> _Seen | None:
        """Return what is to be seen of a claim now; None if it is gone."""
        state = self._state
        claim, allocated = state.claims.get(uid), state.allocated(uid)
        if claim is None and not allocated:
            return None
        server, entry = next(iter(allocated.items()), ("", None))
        chosen = entry.pod_uid if entry is not None else None
        started = (pod.outcome.started_at for pod in state.pods_of(uid) if pod.uid == chosen)
        if claim is None:
            partition, reason = state.servers[server].spec.partition, ""
        else:
            target = class_target(claim.device_class, state.partitions)
            partition = target.partition if target is not None else ""
            reason = claim.status.partition(": ")[0] if entry is None else ""
        return _Seen(
            partition,
            entry,
            next(started, None),
            reason if stalled(reason) else "",
            claim.created if claim is not None else now,
        )

    def _count(self, seen: _Seen, step: str) -> None:
        if seen.partition in self._state.partitions:
            self._tally.count(self._tally.claim_steps, seen.partition, step)
