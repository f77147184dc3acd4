"""What happens to workloads: the slices that Pods get and wait for, as events and as records.

Pure. A slice is known by its entry in the ledger of a GPUServer, so jobs and workloads are recorded
alike.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from partita.claims.workload_view import WorkloadView
from partita.claims.workloads import all_workloads
from partita.cli.number_format import duration, gib
from partita.models import Allocation, Outcome, Phase
from partita.scheduling.reasons import Reason
from partita.store.state import State
from partita_testcluster.cli.demo_clock import DemoClock
from partita_testcluster.cli.demo_events import DemoEvent

__all__ = ["SliceRecord", "WorkloadHistory", "WorkloadRecord"]

_TRANSIENT: Final = ("", Reason.SCHEDULING)
"""Reasons of jobs and workloads that no cycle has considered yet."""


@dataclass(slots=True)
class SliceRecord:
    """A slice that a job or a workload has or had."""

    uid: str
    """UID of the claim."""
    name: str
    """Name of the job or of the Pod."""
    server: str
    memory: int
    """Bytes."""
    since: datetime
    until: datetime
    """When it was seen last."""

    def overlaps(self, other: "SliceRecord") -> bool:
        """Return whether both were on one GPU at the same time."""
        together = self.since < other.until and other.since < self.until
        return self.server == other.server and together


@dataclass(slots=True)
class WorkloadRecord:
    """A Pod with a claim."""

    uid: str
    """UID of its claim."""
    namespace: str
    name: str
    application: str
    lasting: bool
    seen: datetime
    """When it was seen first."""
    placed: bool = False
    """Whether it has or had a slice."""
    outcome: str = ""
    """How it ended; empty if it has not."""
    waited: dict[str, str] = field(default_factory=dict)
    """Why it waited: message by reason."""


class WorkloadHistory:
    """Derives the events of workloads from each state, and keeps what has happened."""

    def __init__(self, clock: DemoClock) -> None:
        self._clock = clock
        self.workloads: dict[str, WorkloadRecord] = {}
        """All workloads so far, by UID of their claim."""
        self.slices: dict[tuple[str, datetime], SliceRecord] = {}
        """All slices so far, by UID of the claim and time of the allocation."""
        self._present: list[SliceRecord] = []
        self._jobs_waited: set[tuple[str, str]] = set()
        self.most_allocated = 0
        """Most bytes that were allocated at one time."""
        self.most_together = 0
        """Most jobs and workloads that had a slice at one time."""

    def update(self, state: State, now: datetime) -> list[DemoEvent]:
        """Return the new events of workloads in a state."""
        self._record_slices(state, now)
        at = self._clock.at(now)
        views = {view.uid: view for view in all_workloads(state)}
        events = list(self._waiting_jobs(state, at))
        for view in views.values():
            events += [DemoEvent(at, view.name, *what) for what in self._seen(view, now)]
        for record in self.workloads.values():
            if not record.outcome and record.uid not in views:
                events.append(DemoEvent(at, record.name, *self._ended(record, state)))
        return events

    def beside(self, name: str) -> list[str]:
        """Return the names of all that were on one GPU with a job or a Pod at any time."""
        own = [piece for piece in self.slices.values() if piece.name == name]
        others = [
            piece.name
            for piece in self.slices.values()
            if piece.name != name and any(piece.overlaps(one) for one in own)
        ]
        return list(dict.fromkeys(others))

    def slice_of(self, uid: str) -> SliceRecord | None:
        """Return the last slice of a job or a workload."""
        return next((s for s in reversed(self.slices.values()) if s.uid == uid), None)

    def next_of(self, piece: SliceRecord) -> SliceRecord | None:
        """Return the first slice that was allocated on the GPU of a slice after its end."""
        later = (s for s in self.slices.values() if s.server == piece.server)
        return min(
            (s for s in later if s.since >= piece.until), key=lambda s: s.since, default=None
        )

    def _record_slices(self, state: State, now: datetime) -> None:
        self._present = []
        for server, uid, entry in _entries(state):
            new = SliceRecord(uid, entry.user, server, entry.memory, entry.since, now)
            piece = self.slices.setdefault((uid, entry.since), new)
            piece.until = now
            self._present.append(piece)
        allocated = sum(piece.memory for piece in self._present)
        self.most_allocated = max(self.most_allocated, allocated)
        self.most_together = max(self.most_together, len(self._present))

    def _waiting_jobs(self, state: State, at: float) -> Iterator[DemoEvent]:
        """Yield why jobs wait, each reason of a job once."""
        for uid, job in state.jobs.items():
            key = uid, job.status.reason
            waits = job.status.phase is Phase.QUEUED and job.status.reason not in _TRANSIENT
            if waits and key not in self._jobs_waited:
                self._jobs_waited.add(key)
                yield DemoEvent(at, job.metadata.name, f"waits: {job.status.message}", "yellow")

    def _seen(self, view: WorkloadView, now: datetime) -> Iterator[tuple[str, str]]:
        """Return what is new about an existing workload, with the style of the text."""
        record = self.workloads.get(view.uid)
        if record is None:
            application, lasting = view.application, view.lasting
            record = WorkloadRecord(
                view.uid, view.namespace, view.name, application, lasting, seen=now
            )
            self.workloads[view.uid] = record
        if view.waits and view.reason not in {*_TRANSIENT, *record.waited}:
            record.waited[view.reason] = view.message
            yield f"waits: {view.message}", "yellow"
        elif view.place is not None and not record.placed:
            record.placed = True
            others = [
                piece.name
                for piece in self._present
                if piece.server == view.place.server and piece.uid != view.uid
            ]
            beside = f" beside {', '.join(others)}" if others else ""
            yield f"gets {gib(view.memory or 0)} GiB on {view.place.server}{beside}", ""

    def _ended(self, record: WorkloadRecord, state: State) -> tuple[str, str]:
        """Note the end of a workload; return what happened and the style of the text."""
        key = f"{record.namespace}/{record.name}"
        pod = next((pod for pod in state.pods.values() if pod.key == key), None)
        piece = self.slice_of(record.uid)
        if pod is None or not pod.outcome.finished:
            record.outcome = "deleted"
            return ("is deleted; its slice is free" if piece else "is deleted"), "dim"
        if pod.outcome.outcome is Outcome.SUCCEEDED:
            record.outcome = "succeeded"
            ran = self._clock.seconds(piece.since, piece.until) if piece else 0.0
            return f"has succeeded after {duration(ran)}", "green"
        record.outcome = f"failed: {pod.outcome.reason}"
        return f"has failed: {pod.outcome.reason}", "red"


def _entries(state: State) -> Iterator[tuple[str, str, Allocation]]:
    """Yield the GPUServer, the UID and the entry of each allocation."""
    for server in state.servers.values():
        for uid, entry in server.status.allocations.items():
            yield server.metadata.name, uid, entry
