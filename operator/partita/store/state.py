"""The operator's cache: every relevant object, updated by the watches and the operator's writes.

Not thread-safe: everything runs in one event loop. An older version never replaces a newer one, so
the response to a write and the watch event of the same write may arrive in either order.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Any

from partita.models import ApplicationProfile, GPUPartition, GPUServer, SharedGPUJob
from partita.pods.probe_pod import probe_name
from partita.store.allocations import Allocations, user_of, users_of
from partita.store.application_profiles import ApplicationProfiles
from partita.store.claim_view import ClaimView
from partita.store.claims import Claims
from partita.store.comparison import is_unrecorded, new_reports, same_desired_state
from partita.store.finished_jobs import FinishedJob, FinishedJobs
from partita.store.index import Index, UserIndex
from partita.store.node_usage import NodeUsage
from partita.store.object_versions import Tombstones, apply_resource, apply_view
from partita.store.owned_pods import OwnedPods, is_of_job
from partita.store.unreadable import UnreadableObjects
from partita.store.views import NamespaceView, NodeView, PodView
from partita.store.work_queue import WorkQueues, utc_now

__all__ = ["State"]

Json = dict[str, Any]

FREED_AFTER = 1.0
"""Seconds until a partition is scheduled after resources of a node were freed."""


class State:
    """The cache. `apply_*` stores an object from the API server and adds changes to the queues.

    Parameters
    ----------
    server_namespace
        Namespace of the server Pods. Empty for a reader that creates none: then a server Pod counts
        only once its UID is in the GPUServer's status.
    now
        The clock of the operator and of the queues.
    archives
        Whether only records are kept of finished jobs with which nothing is left to do.
    """

    def __init__(
        self,
        server_namespace: str = "",
        now: Callable[[], datetime] = utc_now,
        *,
        archives: bool = False,
    ) -> None:
        self.now = now
        self.queues = WorkQueues(now, self.namespace_of)
        self.scarce_nodes: dict[str, frozenset[str]] = {}
        """Nodes with too little free CPU or memory for some waiting job, by partition."""
        self._server_namespace = server_namespace
        self.partitions: dict[str, GPUPartition] = {}
        self.servers: dict[str, GPUServer] = {}
        self.jobs: dict[str, SharedGPUJob] = {}
        """By UID, without those in `finished`."""
        self.finished = FinishedJobs()
        self._archives = archives
        self.profiles = ApplicationProfiles()
        self.nodes: dict[str, NodeView] = {}
        self.usage = NodeUsage(self._resources_freed)
        """Requests of all Pods, by node."""
        self.namespaces: dict[str, NamespaceView] = {}
        self._owned = OwnedPods()
        self.pods = self._owned.by_uid
        """All Pods that claim to be Partita's (`PodView`), by UID."""
        self._claims = Claims(self.pods, self.partitions)
        self.claims = self._claims.by_uid
        """The claims of Partita's device classes, by UID."""
        self.claim_named = self._claims.named
        self.claims_of_user = self._claims.of_user
        self.claims_made_for = self._claims.made_for
        self.pods_beside = self._claims.pods_beside
        self.unreadable = UnreadableObjects()
        self.job_index = UserIndex()
        self._partition_servers = Index()
        self._allocations = Allocations(self.servers)
        self.allocated = self._allocations.of
        self.is_allocated = self._allocations.has
        self.holders = self._allocations.holders
        self.places = self._allocations.places
        self.holder = self._allocations.holder
        self.allocated_claims = self._allocations.claims
        self.allocated_for = self._allocations.of_pod
        self._gone = Tombstones()
        self._apply = partial(apply_resource, gone=self._gone, unreadable=self.unreadable)

    # Queries.

    def namespace_of(self, uid: str) -> str:
        """Return the namespace of a job or a claim; empty if it is unknown."""
        found = self.user(uid) or self.finished.get(uid)
        return found.namespace if found is not None else ""

    def user(self, uid: str) -> SharedGPUJob | ClaimView | None:
        """Return what may wait for GPUs, or use them, under a UID; None if it is unknown."""
        return self.jobs.get(uid) or self.claims.get(uid)

    def users_in(self, partition: str) -> list[str]:
        """Return the UIDs of all jobs of a partition, and of the claims that belong to none."""
        return self._users_where(partition.__eq__)

    def _users_where(self, wanted: Callable[[str], bool]) -> list[str]:
        jobs, claims = self.job_index.all, self._claims.index.all
        of_jobs = map(jobs.of, filter(wanted, jobs.keys()))
        return [*chain(*of_jobs, *self._claims.of_partitions(claims, wanted))]

    def unfinished_in(self, partition: str) -> list[Collection[str]]:
        """Return what waits for a partition's GPUs or has some: UIDs of jobs, and of each class."""
        jobs, claims = self.job_index.unfinished, self._claims.index.unfinished
        return [jobs.of(partition), *self._claims.of_partitions(claims, partition.__eq__)]

    def jobs_of(self, partition: str) -> Iterator[SharedGPUJob]:
        """Return the jobs of a partition, unordered."""
        return (self.jobs[uid] for uid in self.job_index.all.of(partition))

    def claims_of(self, partition: str) -> Iterator[str]:
        """Return the UIDs of the claims of a partition's device classes, but those of jobs."""
        return chain(*self._claims.of_partitions(self._claims.index.all, partition.__eq__))

    def user_of(self, uid: str) -> str:
        """Return the UID of the job for an attempt of which a claim was made, or else its own."""
        if (claim := self.claims.get(uid)) is not None:
            return claim.user
        return next((user_of(uid, entry) for entry in self.allocated(uid).values()), uid)

    def servers_of(self, partition: str) -> list[GPUServer]:
        """Return the GPUServers of a partition, sorted by name."""
        return [self.servers[n] for n in sorted(self._partition_servers.of(partition))]

    def pods_of(self, uid: str) -> list[PodView]:
        """Return the Pods of a job or claim, by attempt and name.

        Those of a claim are the Pods for which it was made, or that name it. Deleted ones of a job
        stay until their end is in its status.
        """
        allocated, job = self.allocated(uid), self.jobs.get(uid)
        found = {pod.uid: pod for pod in self._claims.pods_of(uid, allocated)}
        entries = allocated.values()
        owned = (pod for pod in self._owned.of(uid) if is_of_job(pod, job, entries, uid=uid))
        found |= {pod.uid: pod for pod in owned}
        removed = self._owned.removed.get(uid, ())
        return sorted([*found.values(), *removed], key=lambda pod: (pod.attempt, pod.name))

    def job_of(self, pod: PodView) -> str:
        """Return the UID of the job that a Pod belongs to, or claims to; empty for none."""
        holders = self._allocations.of_pod(pod.uid)
        return pod.owner_uid or next((self.user_of(uid) for uid in holders), "")

    def server_pod(self, name: str) -> PodView | None:
        """Return the server Pod of a GPUServer.

        It is the Pod whose UID is in the GPUServer's status. If the status has no UID, because the
        operator ended between two writes, it is the GPUServer's Pod in the server namespace.
        """
        server = self.servers.get(name)
        if server is None:
            return None
        if server.status.pod_uid:
            return self.pods.get(server.status.pod_uid)
        return self._owned.named(server.metadata.uid, self._server_namespace, name)

    def probe_pod(self, server: GPUServer) -> PodView | None:
        """Return the probe Pod of a GPUServer."""
        name = probe_name(server.metadata.name)
        return self._owned.named(server.metadata.uid, self._server_namespace, name)

    def unknown(self, uid: str) -> bool:
        """Return whether an object exists of which no version could be read."""
        if self.unreadable.get(uid) is None:
            return False
        known = (*self.partitions.values(), *self.servers.values())
        return uid not in self.jobs and all(one.metadata.uid != uid for one in known)

    def unknown_of(self, partition: str) -> str:
        """Return what of a partition, or of the ledgers of its GPUs, could not be read.

        Empty if all could be read. Nothing that depends on an unread object is allocated or
        released.
        """
        about = self.unreadable.about(partition)
        return next((said for uid, said in about if self.unknown(uid)), "")

    # Updates from the API server.

    def apply_partition(self, body: Json, *, deleted: bool = False) -> None:
        """Apply a GPUPartition."""
        name = body["metadata"]["name"]
        old, unknown = self.partitions.get(name), self.unknown_of(name)
        self._apply(GPUPartition, "gpupartitions", self.partitions, name, body, deleted=deleted)
        new = self.partitions.get(name)
        if unknown != self.unknown_of(name):
            self._all_of(name)
        if new is old:
            return
        if old and new and same_desired_state(old, new):
            return  # only the status has changed, which the operator writes
        self._all_of(name)
        if old is None or new is None:
            # The message of jobs with an unknown partition lists the existing ones.
            self.queues.jobs.add(*self._users_where(lambda name: name not in self.partitions))

    def apply_server(self, body: Json, *, deleted: bool = False, ours: bool = False) -> None:
        """Apply a GPUServer with its ledger.

        Parameters
        ----------
        ours
            Whether it is the response to the operator's own ledger write. Then a change of the
            allocations needs no new scheduling cycle.
        """
        name = body["metadata"]["name"]
        old = self.servers.get(name)
        before_unread = self.unreadable.get(body["metadata"]["uid"])
        self._apply(GPUServer, "gpuservers", self.servers, name, body, deleted=deleted)
        new = self.servers.get(name)
        after_unread = self.unreadable.get(body["metadata"]["uid"])
        if (before_unread is None) is not (after_unread is None):
            for one in filter(None, (before_unread, after_unread)):
                self._all_of(*([one.partition] if one.partition else self.partitions))
        if new is old:
            return
        before = old.status.allocations if old else {}
        after = new.status.allocations if new else {}
        self._index_server(name, old, new)
        self.queues.jobs.add(*new_reports(old, new))
        partitions = {s.spec.partition for s in (old, new) if s is not None}
        if old is None or new is None or old.eligibility != new.eligibility:
            # It was added, deleted, or became available or unavailable: all its jobs are affected.
            self.queues.partition_changed(*partitions)
            self.queues.jobs.add(*users_of(before), *users_of(after))
        elif before != after:
            gone, made = before.items() - after.items(), after.items() - before.items()
            self.queues.jobs.add(*users_of(dict(gone)), *users_of(dict(made)))
            if ours:
                self.queues.allocations_changed(*partitions)
            else:
                self.queues.partition_changed(*partitions)

    def _index_server(self, name: str, old: GPUServer | None, new: GPUServer | None) -> None:
        released = self._allocations.changed(name, old, new)
        if old is not None:
            self._partition_servers.discard(old.spec.partition, name)
            if released:
                self._resources_freed(old.status.node)
        if new is not None:
            self._partition_servers.add(new.spec.partition, name)

    def apply_job(self, body: Json, *, deleted: bool = False) -> None:
        """Apply a SharedGPUJob."""
        uid = body["metadata"]["uid"]
        if self._archives:
            known = uid in self.jobs or uid in self._gone or self.has_leftovers(uid)
            if (found := self.finished.take(body, deleted=deleted, known=known)) is not None:
                if found.expires is not None:
                    self.queues.jobs.add(uid)
                return
        old = self.jobs.get(uid)
        self._apply(SharedGPUJob, "sharedgpujobs", self.jobs, uid, body, deleted=deleted)
        new = self.jobs.get(uid)
        if new is old:
            return
        self.queues.partition_statuses.add(*self.job_index.changed(uid, old, new))
        if removed := self._owned.removed.pop(uid, None):
            self._keep_removed(uid, removed)
        self.queues.jobs.add(uid)

    def archive(self, uid: str) -> None:
        """Replace a job whose status says everything by a record, unless anything is left of it."""
        job = self.jobs.get(uid)
        if job is None or not self._archives or self.has_leftovers(uid):
            return
        self.finished.add(FinishedJob.of(job))
        del self.jobs[uid]
        self.job_index.changed(uid, job, None)
        self._owned.removed.pop(uid, None)
        for pod in self._owned.of(uid):
            self._owned.drop(pod)
            del self.pods[pod.uid]

    def has_leftovers(self, uid: str) -> bool:
        """Return whether a finished job still has allocations, claims or running Pods.

        Claims that are being deleted do not count. Kubernetes' claim controller removes them.
        """
        return bool(
            self.is_allocated(uid)
            or any(not claim.deleting for claim in self.claims_of_user(uid))
            or any(pod.alive for pod in self._owned.of(uid))
        )

    def _resources_freed(self, node: str) -> None:
        """Schedule the partitions whose jobs wait for CPU or memory of a node."""
        for partition, nodes in self.scarce_nodes.items():
            if node in nodes:
                self.queues.partitions.add_after(partition, FREED_AFTER)

    def _all_of(self, *partitions: str) -> None:
        """Add partitions and all that use them to the queues."""
        self.queues.partition_changed(*partitions)
        for name in partitions:
            self.queues.jobs.add(*self.users_in(name))

    def apply_claim(self, body: Json, *, deleted: bool = False) -> None:
        """Apply a ResourceClaim; those of other drivers are ignored."""
        uid = body["metadata"]["uid"]
        old = self.claims.get(uid)
        if (view := old if deleted else self._claims.read(body)) is None:
            return
        apply_view(self.claims, uid, view, deleted=deleted, gone=self._gone)
        new = self.claims.get(uid)
        if new is not old:
            self.queues.partition_statuses.add(*self._claims.changed(uid, old, new))
            self.queues.jobs.add(view.user)

    def apply_profile(self, body: Json, *, deleted: bool = False) -> None:
        """Apply an ApplicationProfile."""
        uid, known = body["metadata"]["uid"], self.profiles.objects
        old = known.get(uid)
        self._apply(ApplicationProfile, "applicationprofiles", known, uid, body, deleted=deleted)
        new = known.get(uid)
        if new is old:
            return
        self.queues.applications.add(*self.profiles.changed(old, new))

    def apply_pod(self, body: Json, *, deleted: bool = False) -> None:
        """Apply any Pod of the cluster; of other Pods than Partita's only the requests are kept."""
        uid = body["metadata"]["uid"]
        self.usage.take(body, deleted=deleted or uid in self._gone)
        known = self.pods.get(uid)
        pod = PodView.parse(body) if known is None else known.updated(body)
        if pod is None or (known is None and pod.owner_uid in self.finished and not pod.alive):
            return
        apply_view(self.pods, pod.uid, pod, deleted=deleted, gone=self._gone)
        if not pod.owner_kind:
            self._claims_changed(known, self.pods.get(uid))
            return
        job = self.job_of(pod) if pod.attempt else ""
        if pod.uid in self.pods:
            self._owned.index(pod)
        elif known is not None:
            self._owned.drop(known)
            found, entries = self.jobs.get(job), self.allocated(job).values()
            if job and is_of_job(known, found, entries, uid=job):
                self._keep_removed(job, [known.removed()])
        if job:
            self.queues.jobs.add(job)
        elif (server := self.servers.get(pod.owner)) is not None:
            self.queues.partition_changed(server.spec.partition)
            self.queues.jobs.add(*users_of(server.status.allocations))

    def _claims_changed(self, old: PodView | None, new: PodView | None) -> None:
        """Add the claims of a Pod to the queue, and those that are allocated for it."""
        self.queues.jobs.add(*self._claims.pod_changed(old, new))
        if old is not None and (new is None or not new.alive):
            self.queues.jobs.add(*self._allocations.of_pod(old.uid))

    def _keep_removed(self, uid: str, pods: Iterable[PodView]) -> None:
        """Keep deleted Pods without gate whose end is not in the status: no attempt is repeated."""
        job = self.jobs.get(uid)
        new = [p for p in pods if job is not None and not p.gated and is_unrecorded(job, p.attempt)]
        if new:
            self._owned.removed[uid] = [*self._owned.removed.get(uid, ()), *new]

    def apply_node(self, body: Json, *, deleted: bool = False) -> None:
        """Apply a Node. A mere heartbeat changes nothing."""
        node = NodeView.parse(body)
        old = self.nodes.get(node.name)
        node = node.sharing(old)
        apply_view(self.nodes, node.name, node, deleted=deleted, gone=self._gone)
        new = self.nodes.get(node.name)
        if old is not None and old == new:
            return
        for name, server in self.servers.items():
            pod = self.server_pod(name)
            if node.name in {server.status.node, pod.node if pod else ""}:
                self.queues.partition_changed(server.spec.partition)
                self.queues.jobs.add(*users_of(server.status.allocations))

    def apply_namespace(self, body: Json, *, deleted: bool = False) -> None:
        """Apply a Namespace."""
        view = NamespaceView.parse(body)
        old = self.namespaces.get(view.name)
        apply_view(self.namespaces, view.name, view, deleted=deleted, gone=self._gone)
        if old is None or old.labels != view.labels or deleted:
            choosy = (n for n, p in self.partitions.items() if p.spec.allowed_namespaces)
            self.queues.partition_changed(*choosy)
