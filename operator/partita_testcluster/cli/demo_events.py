"""Events in a cluster as short sentences, derived from each state and the events reported so far.

Pure. All events are derived from the statuses, so none is lost between two states.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from partita.cli.number_format import duration, gib
from partita.constants import OTHERS_JOB
from partita.models import Attempt, Outcome, Phase, SharedGPUJob
from partita.scheduling.gpu_state import server_state
from partita.scheduling.reasons import stalled
from partita.store.state import State
from partita_testcluster.cli.demo_clock import DemoClock

__all__ = ["DemoEvent", "DemoEvents", "finished_at", "settled"]


@dataclass(frozen=True, slots=True)
class DemoEvent:
    """An event: its time, subject, description and output style."""

    at: float
    """Simulated seconds since the first job was submitted."""
    subject: str
    what: str
    style: str = ""


def settled(job: SharedGPUJob) -> bool:
    """Return whether the state of a job is final until its YAML changes."""
    status = job.status
    if status.phase is None:
        return False
    waits_for_ever = status.phase is Phase.QUEUED and stalled(status.reason)
    return status.phase.finished or status.phase is Phase.SUSPENDED or waits_for_ever


class DemoEvents:
    """Reports the new events of GPUs and jobs in each state."""

    def __init__(self, clock: DemoClock) -> None:
        self._clock = clock
        self._reported: set[tuple[str, str]] = set()

    def update(self, state: State, now: datetime) -> list[DemoEvent]:
        """Return the new events in a state."""
        events = []
        for key, event in self._all(state, self._clock.at(now)):
            if key not in self._reported:
                self._reported.add(key)
                events.append(event)
        return events

    def _all(self, state: State, at: float) -> Iterator[tuple[tuple[str, str], DemoEvent]]:
        for name, server in sorted(state.servers.items()):
            partition = state.partitions.get(server.spec.partition)
            if partition is None:
                continue
            found = server_state(server, partition, state)
            if found == "Ready":
                what = f"is ready: {server.status.product} on {server.status.node}"
                yield (name, "ready"), DemoEvent(at, name, what)
            elif found not in {"Starting", "Draining"}:
                yield (name, found), DemoEvent(at, name, f"is {found.lower()}", "red")
        for uid, job in state.jobs.items():
            for what, event in self._job(job, at):
                yield (uid, what), event

    def _job(self, job: SharedGPUJob, at: float) -> Iterator[tuple[str, DemoEvent]]:
        name, status = job.metadata.name, job.status
        for attempt in status.attempts:
            yield f"{attempt.number} starts", DemoEvent(at, name, _start(attempt))
            if attempt.outcome is not None and attempt.outcome is not Outcome.SUCCEEDED:
                yield f"{attempt.number} ends", DemoEvent(at, name, _end(attempt), "yellow")
        if status.phase is Phase.SUCCEEDED:
            last = status.attempts[-1]
            ran = self._clock.seconds(last.booked_time, finished_at(job))
            yield "end", DemoEvent(at, name, f"has succeeded after {duration(ran)}", "green")
        elif status.phase is Phase.FAILED:
            yield "end", DemoEvent(at, name, f"has failed: {status.reason}", "red")
        elif status.phase is Phase.SUSPENDED:
            yield (
                "suspended",
                DemoEvent(at, name, "is suspended; `partita resume` queues it", "dim"),
            )
        elif status.phase is Phase.QUEUED and stalled(status.reason):
            why = f"waits: {status.message.partition(':')[0]}"
            yield f"waits {status.reason}", DemoEvent(at, name, why, "yellow")
        elif (expected := status.estimated_start) is not None and expected.latest is not None:
            ends = [self._clock.at(end) for end in (expected.earliest, expected.latest) if end]
            when = " and ".join(duration(end) for end in ends)
            yield "expected", DemoEvent(at, name, f"waits; starts between {when}, with 90 %")


def finished_at(job: SharedGPUJob) -> datetime | None:
    """Return when a job finished, to the microsecond; the times of Pods are in whole seconds."""
    ends = [c for c in job.status.conditions if c.type in {"Complete", "Failed"}]
    return next((c.last_transition_time for c in ends if c.status == "True"), None)


def _start(attempt: Attempt) -> str:
    where = ", ".join(attempt.servers)
    names = [key.rpartition("/")[2] for key in attempt.beside if key != OTHERS_JOB]
    hidden = len(attempt.beside) - len(names)
    if hidden:
        names.append(
            OTHERS_JOB if hidden == 1 else f"{hidden} jobs or workloads of other namespaces"
        )
    beside = f" beside {', '.join(names)}" if names else ""
    if attempt.number > 1:
        return f"starts again on {where} with {gib(attempt.memory)} GiB{beside}"
    return f"starts on {where}{beside}"


def _end(attempt: Attempt) -> str:
    if attempt.outcome is Outcome.OUT_OF_MEMORY:
        return f"ran out of GPU memory at {gib(attempt.memory)} GiB: queued again for more memory"
    return f"attempt {attempt.number} ended: {attempt.outcome}"
