"""A cluster of dictionaries, and an operator that can be stopped before any of its writes.

The operator decides with the real state, lifecycle, queue and cycle; only its I/O is played:
`Operator.work` is a generator that yields before each write.
"""

import asyncio
import copy
from collections import Counter
from collections.abc import Generator
from datetime import datetime
from typing import Any

from partita.constants import MPS_MAX_CLIENTS
from partita.decide.cycle import run_cycle
from partita.decide.ledger import LedgerChanges, ServerChange, allocations_after, overcommitted
from partita.decide.partition_state import PartitionState
from partita.decide.policy_runner import Answer, PolicyRunner
from partita.informer.state import State
from partita.models import Allocation, GPUServer, SharingMode
from partita.models.partition import PolicySpec
from partita.models.quantities import format_time
from partita.reconcile.job_reconciler import JobReconciler
from partita.reconcile.job_request import allocatable
from partita.reconcile.job_status import merge_diff
from partita.reconcile.pod_creation import PodCreation
from partita_policies import Job, Snapshot
from partita_policies.fifo import FIFO, FIFOParameters
from support.builders import (
    SERVER_NAMESPACE,
    START,
    a_partition,
    gpus_up,
    job_body,
    partition_body,
    pod_body,
    pod_status,
    server_body,
    take,
)
from support.patches import merged

Json = dict[str, Any]
Writes = Generator[None, None, None]


class ConflictError(Exception):
    """A precondition does not hold."""


class Cluster:
    """The API server: objects by UID, their versions, and what has happened to them."""

    def __init__(self, mode: SharingMode, servers: int) -> None:
        self.partition = a_partition(gpus=servers, sharing={"mode": mode.value})
        self.objects: dict[str, Json] = {}
        self.events: list[tuple[Json, bool]] = []
        self.now = START
        self.created: Counter[str] = Counter()
        """Pods by name: none may be made twice."""
        self._version = 1_000_000
        self.put(partition_body(gpus=servers, sharing={"mode": mode.value}))
        for body in gpus_up(*(server_body(f"shared-{n}", mode=mode.value) for n in range(servers))):
            self.put(body)

    def put(self, body: Json) -> Json:
        self._version += 1
        body = copy.deepcopy(body)
        body["metadata"]["resourceVersion"] = str(self._version)
        self.objects[body["metadata"]["uid"]] = body
        self.events.append((copy.deepcopy(body), False))
        return copy.deepcopy(body)

    def patch(self, uid: str, patch: Json, *, version: str = "") -> Json:
        body = self.objects.get(uid)
        if body is None or (version and body["metadata"]["resourceVersion"] != version):
            raise ConflictError
        return self.put(merged(body, patch))

    def remove(self, uid: str) -> None:
        body = self.objects.pop(uid, None)
        if body is not None:
            self.events.append((body, True))
            for pod in self.pods():
                if owner_of(pod) == uid:
                    self.delete_pod(pod["metadata"]["uid"])  # as the garbage collector does

    def delete_pod(self, uid: str, *, now: bool = False) -> None:
        pod = self.objects.get(uid)
        if pod is None:
            return
        if now or not pod["spec"].get("nodeName") or pod["status"]["phase"] in _OVER:
            self.remove(uid)
        elif "deletionTimestamp" not in pod["metadata"]:
            self.patch(uid, {"metadata": {"deletionTimestamp": format_time(self.now)}})

    def of(self, prefix: str) -> list[Json]:
        return [body for uid, body in sorted(self.objects.items()) if uid.startswith(prefix)]

    def jobs(self) -> list[Json]:
        return self.of("uid-job-")

    def pods(self) -> list[Json]:
        return self.of("pod-job-")

    def servers(self) -> list[GPUServer]:
        return [GPUServer.parse(body) for body in self.of("uid-shared-")]

    def submit(self, name: str, **spec: Any) -> None:
        self.put(job_body(name, metadata={"creationTimestamp": format_time(self.now)}, **spec))

    def check(self) -> None:
        """Hold the invariants of the ledger and of the attempts."""
        alive = Counter(owner_of(pod) for pod in self.pods() if pod["status"]["phase"] not in _OVER)
        assert all(count == 1 for count in alive.values()), alive
        assert all(count == 1 for count in self.created.values()), self.created
        for server in self.servers():
            assert self.overcommitted(server, server.status.allocations) == []
        for pod in self.pods():
            self._check_allocated(pod)
        for job in self.jobs():
            numbers = [a["number"] for a in (job.get("status") or {}).get("attempts", [])]
            assert numbers == sorted(set(numbers))

    def overcommitted(self, server: GPUServer, ledger: dict[str, Allocation]) -> list[str]:
        return overcommitted(
            ledger,
            memory=allocatable(server.status.memory, self.partition),
            max_jobs=server.spec.max_jobs,
            max_clients=MPS_MAX_CLIENTS,
        )

    def _check_allocated(self, pod: Json) -> None:
        """A Pod that may run holds what it was made for."""
        uid = owner_of(pod)
        if pod["status"]["phase"] in _OVER:
            return
        attempts = [
            server.status.allocations[uid].attempt
            for server in self.servers()
            if uid in server.status.allocations
        ]
        assert set(attempts) == {int(pod["metadata"]["name"].rpartition("-")[2])}
        job = self.objects.get(uid)
        assert job is None or len(attempts) == job["spec"].get("gpus", 1)

    def check_marked(self, pod_uid: str) -> None:
        """The agent is told of the end of a Pod's MPS clients before the operator deletes it."""
        pod = self.objects.get(pod_uid)
        if pod is None:
            return
        attempt = int(pod["metadata"]["name"].rpartition("-")[2])
        for server in self.servers():
            allocation = server.status.allocations.get(owner_of(pod))
            if server.spec.mode is SharingMode.MPS and allocation and allocation.attempt == attempt:
                assert allocation.releasing_since is not None

    def check_release(self, uid: str) -> None:
        """The end of an attempt is written down before its allocation goes."""
        job = self.objects.get(uid)
        if job is None:
            return
        ended = {
            a["number"] for a in (job.get("status") or {}).get("attempts", []) if a.get("outcome")
        }
        made = {
            int(name.rpartition("-")[2])
            for name in self.created
            if name.rpartition("-")[0] == job["metadata"]["name"]
        }
        assert made <= ended, (made, ended)


_OVER = {"Succeeded", "Failed"}


def owner_of(pod: Json) -> str:
    """UID of the job that a Pod belongs to."""
    (owner,) = pod["metadata"]["ownerReferences"]
    return str(owner["uid"])


class _Direct(PolicyRunner):
    """A runner whose policy answers at once."""

    async def decide(self, snapshot: Snapshot) -> Answer:
        return Answer(FIFO(FIFOParameters()).decide(snapshot), "fifo")


class Operator:
    """One operator process, from its start to its crash."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._state = State(SERVER_NAMESPACE)
        self._seen = len(cluster.events)
        for prefix in ("uid-", "pod-"):  # Pods come last
            for body in cluster.of(prefix):
                take(self._state, copy.deepcopy(body))
        self._jobs = JobReconciler(self._state)
        self._memory = PartitionState(_Direct(PolicySpec()))

    @property
    def _now(self) -> datetime:
        return self._cluster.now

    def catch_up(self) -> None:
        """Take the events that have come meanwhile."""
        events = self._cluster.events
        while self._seen < len(events):
            body, deleted = events[self._seen]
            self._seen += 1
            take(self._state, copy.deepcopy(body), deleted=deleted)

    def work(self) -> Writes:
        """Do one pass; yield before each write."""
        self._jobs.refresh_largest("shared")
        known = {
            *self._state.jobs,
            *self._state.allocated_jobs(),
            *(p.owner_uid for p in self._state.pods.values()),
        }
        known |= self._state.queues.jobs.take()
        for uid in sorted(known):
            yield from self._look_at(uid)
        yield from self._cycle()

    def _look_at(self, uid: str) -> Writes:
        made = self._jobs.reconcile(uid, self._now)
        for server, marks in self._jobs.marks.items():
            if uid in marks:
                yield
                self._write_ledger(server, ServerChange(mark={uid: marks[uid]}))
        if made is None:
            return
        for pod in made.delete_pods:
            yield
            if not made.delete_now:
                self._cluster.check_marked(pod.uid)
            self._cluster.delete_pod(pod.uid, now=made.delete_now)
        if made.create_pod is not None:
            yield from self._make_pod(uid, made.create_pod)
        if made.find_pod is not None:
            self._find_pod(uid, made.find_pod)
        yield from self._write_status(uid)

    def _write_status(self, uid: str) -> Writes:
        wish = self._jobs.status(uid, self._now)
        if wish is None:
            return
        yield
        job = self._state.jobs[uid]
        patch = merge_diff(job.status.dump(), wish[0].dump())
        try:
            take(self._state, self._cluster.patch(uid, {"status": patch}))
        except ConflictError:
            return  # the job is gone

    def _cycle(self) -> Writes:
        released = {
            server.metadata.name: set(self._jobs.releases[server.metadata.name])
            for server in self._state.servers_of("shared")
        }
        changes = LedgerChanges()
        for server, uids in released.items():
            for uid in uids:
                changes.release(uid, [server])
        result = asyncio.run(
            run_cycle(
                self._state.partitions["shared"],
                self._state,
                waiting=self._jobs.waiting["shared"],
                released=released,
                memory=self._memory,
                now=self._now,
            )
        )
        for job, gpus in result.placed:
            self._jobs.waiting["shared"].pop(job.id)
            self._jobs.creations.allocating(job.id, self._jobs.attempt_of(job.id), self._now)
            for gpu in gpus:
                memory = result.allocated[gpu].memory if job.alone else job.memory
                changes.allocate(job.id, gpu, self._allocation(job, memory))
        allocated = set()
        for server, change in sorted(changes.by_server.items()):
            yield
            if self._write_ledger(server, change):
                allocated.add(server)
                self._jobs.releases[server] -= change.release
        for job, gpus in result.placed:
            if set(gpus) <= allocated:
                yield from self._make_pod(job.id, self._jobs.attempt_of(job.id))

    def _allocation(self, job: Job, memory: int) -> Allocation:
        return Allocation(
            namespace=job.namespace,
            name=job.name.partition("/")[2],
            attempt=self._jobs.attempt_of(job.id),
            memory=memory,
            alone=job.alone,
            since=self._now,
        )

    def _write_ledger(self, name: str, change: ServerChange) -> bool:
        server = self._state.servers[name]
        if self._cluster.overcommitted(server, allocations_after(server, change)):
            return False
        try:
            body = self._cluster.patch(
                server.metadata.uid,
                change.patch(server.status.allocations),
                version=server.metadata.resource_version,
            )
        except ConflictError:
            return False
        for uid in change.release:
            self._cluster.check_release(uid)
        take(self._state, body)
        return True

    def _make_pod(self, uid: str, attempt: int) -> Writes:
        yield
        job, allocated = self._state.jobs.get(uid), self._state.allocated(uid)
        if job is None or not allocated or uid not in self._cluster.objects:
            return
        if any(a.attempt != attempt for a in allocated.values()):
            return
        if self._jobs.creations.of(uid, allocated.values()) is not PodCreation.NOT_CREATED:
            return
        self._jobs.creations.requesting(uid)
        name = f"{job.metadata.name}-{attempt}"
        self._cluster.created[name] += 1
        body = pod_body(job.metadata.name, attempt, status=pod_status())
        body["metadata"]["uid"] += f"-{self._cluster.created.total()}"
        take(self._state, self._cluster.put(body))

    def _find_pod(self, uid: str, attempt: int) -> None:
        """Read the Pod of an attempt by its name, as `Committer.finish` does."""
        job = self._state.jobs[uid]
        name = f"{job.metadata.name}-{attempt}"
        for body in self._cluster.pods():
            if body["metadata"]["name"] == name:
                take(self._state, copy.deepcopy(body))
                return
        if not any(pod.attempt == attempt for pod in self._state.pods_of(uid)):
            self._jobs.creations.not_found(uid, self._state.allocated(uid).values())
