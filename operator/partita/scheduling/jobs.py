"""All jobs as the operator sees them: what is to be done for each, who waits, and why.

Pure bookkeeping over `State`; the loop carries it out.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from partita.models import GPUServer, Outcome, Phase, SharedGPUJob, SharedGPUJobStatus
from partita.scheduling.attempts import Ending, Surroundings
from partita.scheduling.lifecycle import Plan, plan
from partita.scheduling.reasons import Reason, Why
from partita.scheduling.request import Largest, resolve
from partita.scheduling.snapshot import largest_of
from partita.scheduling.state import State
from partita.scheduling.status import Place, job_status
from partita_policies.types import Job

__all__ = ["Jobs", "Refusal"]

QUEUED_WITHIN = 0.4
"""Seconds before `Queued` is first written: most jobs start sooner, and then it never is."""
ASSIGNED_WITHIN = 1.0
"""Seconds before `Assigned` is written: most Pods run sooner, and then `Running` is."""
REASON_WITHIN = 0.5
"""Seconds before a changed reason is written; 2 s are promised."""
REFRESH = timedelta(seconds=15)
"""Between two writes that only renew numbers in a message or a place in the queue."""
SHOWN_POSITIONS = 100
"""Places at the head of a queue that are kept up to date in the statuses."""
DEFAULT_DRAIN = 600.0
"""Seconds for which a GPU whose partition is gone waits for its jobs: the CRD's default."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The API server did not take the job's Pod."""

    why: Why
    generation: int
    """It counts until the job's spec changes,"""
    until: datetime | None = None
    """or until then."""


class Jobs:
    """What is known and wanted of every job.

    Parameters
    ----------
    state
        What the watches feed; `look` reads it afresh for one job.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._plans: dict[str, Plan] = {}
        self._home: dict[str, str] = {}
        self._why: dict[str, Why] = {}
        self._position: dict[str, int] = {}
        self._bypasses: dict[str, int] = {}
        self._told: dict[str, tuple[Reason | None, datetime]] = {}
        self._shown: dict[str, tuple[SharedGPUJobStatus, datetime]] = {}
        self._endings: dict[str, Ending] = {}
        self._refused: dict[str, Refusal] = {}
        self._first_attempt: dict[str, int] = {}
        self.waiting: defaultdict[str, dict[str, Job]] = defaultdict(dict)
        """The jobs that want GPUs, by partition and UID."""
        self.releases: defaultdict[str, set[str]] = defaultdict(set)
        """UIDs of jobs whose bookings are to be given back, by GPUServer."""
        self.largest: dict[str, Largest] = {}
        """The most that each partition could give."""
        self.beside: dict[str, tuple[str, ...]] = {}
        """Jobs on the same GPUs when a job was placed."""
        self.unwritable: set[str] = set()
        """Jobs whose status the API server never takes: they are not waited for."""

    # What others tell.

    def end(self, uid: str, outcome: Outcome, message: str) -> None:
        """Have a job's attempt ended."""
        self._endings[uid] = Ending(outcome, message)

    def refuse(self, uid: str, refusal: Refusal) -> None:
        """Note that the job's Pod cannot be made as things are."""
        self._refused[uid] = refusal

    def name_taken(self, uid: str, attempt: int) -> None:
        """Note that a Pod of somebody else has the name of this attempt."""
        self._first_attempt[uid] = attempt + 1

    def explain(
        self, uid: str, why: Why, now: datetime, *, position: int | None = None, bypasses: int = 0
    ) -> bool:
        """Note why a job waits, after a cycle; tell whether its status is to be renewed.

        Only at the head of a long queue are mere numbers renewed.
        """
        self._why[uid] = why
        self._bypasses[uid] = bypasses
        if position is not None:
            self._position[uid] = position
        reason, told = self._told.get(uid, (None, now))
        near = position is not None and position <= SHOWN_POSITIONS
        if reason is why.reason and not (near and now - told >= REFRESH):
            return False
        self._told[uid] = why.reason, now
        return True

    def refresh_largest(self, partition: str) -> bool:
        """See whether the most that a partition could give has changed."""
        found = self._state.partitions.get(partition)
        largest = largest_of(found, self._state) if found else Largest()
        if self.largest.get(partition) == largest:
            return False
        self.largest[partition] = largest
        return True

    # What others ask.

    def partition_of(self, uid: str) -> str:
        """Name of the partition that the job belongs to, empty when it is not known."""
        return self._home.get(uid, "")

    def plan_of(self, uid: str) -> Plan | None:
        """Return the last plan."""
        return self._plans.get(uid)

    def attempt_of(self, uid: str) -> int:
        """Return the number of the attempt that a booking made now is for."""
        return max(self._plans[uid].next_attempt, self._first_attempt.get(uid, 1))

    # The work.

    def look(self, uid: str, now: datetime) -> Plan | None:
        """Look at one job anew: plan it, and put it into the queue or take it out.

        Returns
        -------
        Plan or None
            What is to be done; None if the job is gone.
        """
        before = self._stake(uid)
        made = self._look(uid, now)
        after = self._stake(uid)
        if before != after:
            self._state.dirty.partitions(*{p for p, *_ in (*before, *after)})
        return made

    def _stake(self, uid: str) -> list[tuple[str, object]]:
        """Return what the job wants or gives back, by partition: news to its queue."""
        home = self._home.get(uid, "")
        stake: list[tuple[str, object]] = []
        if uid in self.waiting[home]:
            stake.append((home, self.waiting[home][uid]))
        servers = [self._state.servers[s] for s in self._state.booked(uid)]
        names = [(s.spec.partition, s.metadata.name) for s in servers]
        return stake + [(p, name) for p, name in names if uid in self.releases[name]]

    def _look(self, uid: str, now: datetime) -> Plan | None:
        self.waiting[self._home.get(uid, "")].pop(uid, None)
        for server in self._state.booked(uid):
            self.releases[server].discard(uid)
        job = self._state.jobs.get(uid)
        if job is None:
            self._forget(uid)
            return None
        self._home[uid] = job.spec.partition
        made = self._plans[uid] = plan(job, self._surroundings(job, now), now)
        if made.release:
            for server in self._state.booked(uid):
                self.releases[server].add(uid)
        if not made.wants_gpu:
            for kept in (self._why, self._position, self._bypasses, self._told):
                kept.pop(uid, None)
        else:
            self._enqueue(job, made, now)
        if all(a.outcome is not None for a in job.status.attempts) and not self._state.booked(uid):
            self._endings.pop(uid, None)
        return made

    def _forget(self, uid: str) -> None:
        booked = self._state.booked(uid)
        if not any(p.alive for p in self._state.pods_of(uid)):
            for server in booked:
                self.releases[server].add(uid)
        for kept in (
            self._plans,
            self._why,
            self._position,
            self._bypasses,
            self._shown,
            self._told,
            self._endings,
            self._refused,
            self._first_attempt,
            self.beside,
        ):
            kept.pop(uid, None)
        self.unwritable.discard(uid)
        if not booked:
            self._home.pop(uid, None)

    def _enqueue(self, job: SharedGPUJob, made: Plan, now: datetime) -> None:
        uid, name = job.metadata.uid, job.spec.partition
        partition = self._state.partitions.get(name)
        refused = self._refused.get(uid)
        if refused is not None and (
            refused.generation != job.metadata.generation
            or (refused.until is not None and refused.until <= now)
        ):
            del self._refused[uid]
            refused = None
        if refused is not None:
            self._why[uid] = refused.why
            return
        if partition is None or partition.metadata.deletion_timestamp:
            there = ", ".join(sorted(self._state.partitions)) or "none"
            self._why[uid] = Why(
                Reason.PARTITION_NOT_FOUND,
                f"there is no GPUPartition {name} (there is: {there}): create it or name another",
            )
            return
        found = resolve(
            job,
            partition,
            attempts=made.attempts,
            history=self._state.profiles.get((job.metadata.namespace, job.spec.application or "")),
            largest=self.largest.get(name, Largest()),
        )
        if isinstance(found, Why):
            self._why[uid] = found
            self._position.pop(uid, None)
            return
        self.waiting[name][uid] = found
        if uid not in self._why:
            self._why[uid] = Why(Reason.SCHEDULING, "it has just been queued")

    def _surroundings(self, job: SharedGPUJob, now: datetime) -> Surroundings:
        state, uid = self._state, job.metadata.uid
        booked = state.booked(uid)
        servers = {name: state.servers[name] for name in booked}
        peaks = [
            usage.jobs[uid].peak_memory
            for s in servers.values()
            if (usage := s.status.usage) is not None and uid in usage.jobs
        ]
        return Surroundings(
            pods=state.pods_of(uid),
            booked=booked,
            uuids={name: s.status.uuid for name, s in servers.items()},
            nodes={name: s.status.node for name, s in servers.items()},
            node_exists=lambda node: node in state.nodes,
            ending=self._ending(job, now),
            peak=max(peaks, default=None),
            status_refused=uid in self.unwritable,
            beside=self.beside.get(uid, ()),
            known=self._plans[uid].attempts if uid in self._plans else (),
            may_start=self._may_start(job, servers.values()),
        )

    def _may_start(self, job: SharedGPUJob, servers: Iterable[GPUServer]) -> bool:
        partition = self._state.partitions.get(job.spec.partition)
        return (
            partition is not None
            and partition.metadata.deletion_timestamp is None
            and all(server.metadata.deletion_timestamp is None for server in servers)
        )

    def _ending(self, job: SharedGPUJob, now: datetime) -> Ending | None:
        """Tell whether something that happened to its GPUs ends the job's attempt."""
        uid = job.metadata.uid
        for name in self._state.booked(uid):
            fault = self._fault(name)
            if fault:
                return Ending(Outcome.GPU_FAULT, f"{name}: {fault}")
            deadline = self.drain_deadline(name)
            if deadline is not None and deadline <= now:
                return Ending(Outcome.EVICTED, f"{name} is given back, and drainTimeout is over")
        refused, taken = self._refused.get(uid), self._first_attempt.get(uid, 0)
        if refused is not None and refused.generation == job.metadata.generation:
            return Ending(Outcome.EVICTED, refused.why.message)
        if any(a.attempt < taken for a in self._state.booked(uid).values()):
            return Ending(Outcome.EVICTED, "a Pod of somebody else has its name")
        return self._endings.get(uid)

    def _fault(self, server: str) -> str:
        """Say why every program on a GPU is lost; empty when none is."""
        fault = self._state.servers[server].status.condition("Faulted")
        if fault is not None and fault.status == "True":
            return f"{fault.reason}: {fault.message}" if fault.message else fault.reason
        pod = self._state.server_pods.get(server)
        if pod is None or pod.deleting or pod.outcome.finished:
            return "its server Pod is gone"
        return ""

    def drain_deadline(self, server: str) -> datetime | None:
        """When the jobs of a GPU that is given back are ended; None if it is not given back."""
        found = self._state.servers.get(server)
        if found is None or found.metadata.deletion_timestamp is None:
            return None
        partition = self._state.partitions.get(found.spec.partition)
        wait = partition.spec.drain_timeout if partition else DEFAULT_DRAIN
        return found.metadata.deletion_timestamp + timedelta(seconds=wait)

    def wake_at(self, uid: str) -> datetime | None:
        """When the job is to be looked at again though nothing has changed."""
        made = self._plans.get(uid)
        times = [made.wake] if made is not None else []
        times += [self.drain_deadline(server) for server in self._state.booked(uid)]
        if uid in self._refused:
            times.append(self._refused[uid].until)
        return min((t for t in times if t is not None), default=None)

    def status(self, uid: str, now: datetime) -> tuple[SharedGPUJobStatus, float] | None:
        """Return the status that a job should have and how soon, or None if it has it.

        Numbers in a message and places in the queue change all the time; a change of these
        alone is shown only so often.
        """
        job, made = self._state.jobs.get(uid), self._plans.get(uid)
        if job is None or made is None:
            return None
        status = job_status(
            job,
            made,
            now,
            place=self._place(uid),
            why=self._why.get(uid) if made.phase is Phase.QUEUED and made.wants_gpu else None,
            position=self._position.get(uid),
            bypasses=self._bypasses.get(uid, 0),
        )
        if status == job.status:
            return None
        old, since = self._shown.get(uid, (job.status, None))
        numbers = {"message", "queue_position", "bypasses", "conditions"}
        same = old.model_dump(exclude=numbers) == status.model_dump(exclude=numbers)
        if same and since is not None and now - since < REFRESH:
            return None
        self._shown[uid] = status, now
        return status, _within(job.status, status)

    def _place(self, uid: str) -> Place | None:
        booked = self._state.booked(uid)
        if not booked:
            return None
        servers = [self._state.servers[name] for name in booked]
        return Place(
            booked=booked,
            uuids=[s.status.uuid for s in servers],
            node=servers[0].status.node,
            beside=self.beside.get(uid, ()),
        )


def _within(old: SharedGPUJobStatus, new: SharedGPUJobStatus) -> float:
    """Seconds within which a change is to be written."""
    if new.phase is Phase.ASSIGNED:
        return ASSIGNED_WITHIN
    if new.phase is Phase.QUEUED and [a.outcome for a in old.attempts] == [
        a.outcome for a in new.attempts
    ]:
        return QUEUED_WITHIN if old.phase is None else REASON_WITHIN
    return 0.0
