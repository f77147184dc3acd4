"""A partition whose cycles are run one by one, under policies that do as a test says."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from partita.models import GPUPartition
from partita.models.partition import PolicySpec
from partita.scheduling.cycle import Cycle
from partita.scheduling.cycle_result import CycleResult
from partita.scheduling.partition_state import PartitionState
from partita.scheduling.policy_runner import PolicyRunner
from partita.scheduling.reasons import Reason
from partita.scheduling.waiting_jobs import WaitingJobs
from partita.store.state import State
from partita_policies import Job, Parameters, Placement, Snapshot
from partita_policies.capacity import FreeCapacity
from support.builders import (
    GIB,
    a_partition,
    a_state,
    allocation,
    at,
    gpus_up,
    job_body,
    server_body,
)

NOW = at(100)
Decide = Callable[[Snapshot], Sequence[Placement]]


class Scripted:
    """A policy that does as the test says."""

    parameters: ClassVar[type[Parameters]] = Parameters

    def __init__(self, decide: Decide) -> None:
        self.decide = decide


def runner(decide: Decide | None = None, **spec: Any) -> PolicyRunner:
    made = PolicyRunner(PolicySpec(**spec), budget=30.0)
    if decide is not None:
        made._charge.policy = Scripted(decide)
    return made


def first_fit(snapshot: Snapshot) -> list[Placement]:
    """Start whatever fits, in queue order, also from behind what does not."""
    return _greedy(snapshot, snapshot.jobs)


def last_first(snapshot: Snapshot) -> list[Placement]:
    """Serve the queue from its end: as unfair as can be."""
    return _greedy(snapshot, reversed(snapshot.jobs))


def _greedy(snapshot: Snapshot, jobs: Iterable[Job]) -> list[Placement]:
    capacity, placements = FreeCapacity(snapshot.gpus, snapshot.nodes), []
    for job in jobs:
        where = capacity.first_fit(job)
        if where is not None:
            capacity.take(job, where)
            placements.append(Placement(job.id, where))
    return placements


class World:
    """One partition whose jobs start at once and end when told."""

    def __init__(self, *servers: dict[str, Any], decide: Decide | None = None, **spec: Any) -> None:
        spec = {"sharing": {"memoryReservePercent": 0}, "maxPriority": 100, **spec}
        self.state: State = a_state(*gpus_up(*(servers or (server_body(),))))
        self.partition: GPUPartition = a_partition(**spec)
        self.memory = PartitionState(runner(decide))
        self.waiting = WaitingJobs()
        self.released: dict[str, set[str]] = {}
        self._age = 0.0

    def submit(
        self, name: str, memory: int = 8, *, namespace: str = "team-a", **fields: Any
    ) -> Job:
        self._age += 1.0
        body = job_body(name, namespace=namespace, priority=fields.get("priority", 0))
        self.state.apply_job(body)
        fields.setdefault("submitted", self._age)
        job = Job(f"uid-{name}", f"{namespace}/{name}", namespace, memory=memory * GIB, **fields)
        self.waiting[job.id] = job
        return job

    def report(self, server: str, **change: Any) -> None:
        old = self.state.servers[server]
        spec = old.spec.dump()
        ledger = {uid: a.dump() for uid, a in old.status.allocations.items()}
        ledger = change.pop("allocations", ledger)
        body = server_body(server, node=old.status.node, allocations=ledger, **{**spec, **change})
        self.state.apply_server(body)

    def end(self, *names: str) -> None:
        for server in self.state.servers_of("shared"):
            ledger = {
                uid: a.dump() for uid, a in server.status.allocations.items() if a.user not in names
            }
            self.report(server.metadata.name, allocations=ledger)

    async def cycle(self, **more: Any) -> CycleResult:
        """Run a cycle, with more arguments of `Cycle`."""
        result = await Cycle(
            self.partition,
            self.state,
            waiting=self.waiting,
            released=self.released,
            memory=self.memory,
            now=NOW,
            **more,
        ).run()
        for job, where in result.placed:
            self.waiting.pop(job.id, None)
            for server in where:
                self._allocate(server, job, result)
        self.check()
        return result

    def _allocate(self, server: str, job: Job, result: CycleResult) -> None:
        old = self.state.servers[server].status.allocations
        ledger = {uid: a.dump() for uid, a in old.items()}
        memory = result.allocated[server].memory if job.alone else job.memory
        name = job.name.partition("/")[2]
        ledger[f"claim-{name}"] = allocation(
            name, namespace=job.namespace, memory=memory,
            slots=job.slots, clients=job.clients, alone=job.alone, lasting=job.lasting,
        )  # fmt: skip
        self.report(server, allocations=ledger)

    def check(self) -> None:
        """Hold the invariants."""
        for server in self.state.servers_of("shared"):
            jobs = server.status.allocations.values()
            assert sum(a.memory for a in jobs) <= server.status.memory
            assert sum(a.slots for a in jobs) <= server.spec.max_jobs
            assert sum(a.clients for a in jobs) <= 48
            assert not any(a.alone for a in jobs) or len(jobs) == 1

    def running(self, server: str = "shared-0") -> set[str]:
        ledger = self.state.servers[server].status.allocations.values()
        return {a.user for a in ledger}


def started(result: CycleResult) -> list[str]:
    return [job.name.partition("/")[2] for job, _ in result.placed]


def reasons(result: CycleResult) -> dict[str, Reason]:
    return {uid.removeprefix("uid-"): why.reason for uid, why in result.why.items()}
