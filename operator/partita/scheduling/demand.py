"""What jobs and claims want of the scheduling cycles: GPUs, releases, and marks in the ledger."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

from partita.models import Allocation
from partita.models.profile import ApplicationKey
from partita.scheduling.allocated_claim import Growth
from partita.scheduling.gpu_state import readable_partition
from partita.scheduling.node_fit import Largest
from partita.scheduling.reasons import WaitingReason
from partita.scheduling.request import Request
from partita.scheduling.resolved_request import resolve, with_profile
from partita.scheduling.waiting_jobs import WaitingJobs
from partita.store.index import Index
from partita.store.state import State
from partita_policies.types import Job

__all__ = ["Demand"]


class Demand:
    """The demand of all jobs and claims, which are one queue.

    Parameters
    ----------
    state
        The state. A partition is scheduled again when the demand on it changes.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._requests: dict[str, Request] = {}
        """What those ask for that want GPUs, by UID, also if that can never be met."""
        self._asking = Index()
        """Their UIDs, by `namespace/application`."""
        self.largest: dict[str, Largest] = {}
        """The largest capacity of a GPU and a node of each partition."""
        self.waiting: defaultdict[str, WaitingJobs] = defaultdict(WaitingJobs)
        """The jobs and claims that wait for GPUs, by partition and UID."""
        self.releases: defaultdict[str, set[str]] = defaultdict(set)
        """UIDs of claims whose allocations must be released, by GPUServer."""
        self.growths: defaultdict[str, dict[str, Growth]] = defaultdict(dict)
        """The allocated claims that need more memory, by partition and UID."""
        self.marks: defaultdict[str, dict[str, Allocation]] = defaultdict(dict)
        """Allocations that must be marked as releasing, by GPUServer and UID of the claim."""

    @contextmanager
    def changing(self, uid: str, partition: Callable[[], str]) -> Iterator[None]:
        """Replace the demand of a job or claim by what the caller adds meanwhile.

        Parameters
        ----------
        partition
            Returns its partition, which may change meanwhile.
        """
        before = self._of(uid, partition())
        if (request := self._requests.pop(uid, None)) is not None:
            self._asking.discard(f"{request.namespace}/{request.application}", uid)
        self.waiting[partition()].pop(uid, None)
        self.growths[partition()].pop(uid, None)
        for server, holder in self._state.places(uid):
            self.releases[server].discard(holder)
            self.marks[server].pop(holder, None)
        yield
        after = self._of(uid, partition())
        if before != after:
            self._state.queues.partitions.add(*{name for name, _ in (*before, *after)})

    def ask(self, request: Request) -> None:
        """Add the request of a job or claim, for `renew`."""
        self._requests[request.uid] = request
        self._asking.add(f"{request.namespace}/{request.application}", request.uid)

    def resolve(self, request: Request, avoided: Collection[str] = ()) -> Job | WaitingReason:
        """Return a request in numbers, with the history of its application, or why it is not met.

        Parameters
        ----------
        avoided
            As in `partita.scheduling.resolved_request.resolve`.
        """
        partition = readable_partition(request.partition, self._state)
        if isinstance(partition, WaitingReason):
            return partition
        return resolve(
            request,
            partition,
            profile=self._state.profiles.profile(request.namespace, request.application),
            largest=self.largest_of(request),
            avoided=avoided,
        )

    def largest_of(self, request: Request) -> Largest:
        """Return the largest capacity in the partition of a request; zeros while it has none."""
        return self.largest.get(request.partition, Largest())

    def renew(self, applications: Collection[ApplicationKey]) -> set[str]:
        """Give the requests of some applications their new history.

        Returns
        -------
        set[str]
            UIDs of the jobs and claims to reconcile: their memory, and so their position in the
            queue, may follow the history. In the others only profile and duration change.
        """
        to_look = set()
        for namespace, application in applications:
            profile = self._state.profiles.profile(namespace, application)
            for uid in self._asking.of(f"{namespace}/{application}"):
                request = self._requests[uid]
                waiting = self.waiting[request.partition]
                if request.follows_history:
                    to_look.add(uid)
                elif (job := waiting.get(uid)) is not None:
                    waiting[uid] = with_profile(job, request, profile)
                    self._state.queues.partitions.add(request.partition)
        return to_look

    def release(self, uid: str) -> None:
        """Request the release of all allocations of a job or claim."""
        for server, holder in self._state.places(uid):
            self.releases[server].add(holder)

    def mark(self, uid: str, marks: Mapping[str, Allocation]) -> None:
        """Request marks of the allocations of a job or claim, by GPUServer."""
        for server, holder in self._state.places(uid):
            if server in marks:
                self.marks[server][holder] = marks[server]

    def forget_partition(self, partition: str) -> None:
        """Remove the data about a deleted partition and its GPUs."""
        if not self.waiting[partition]:
            del self.waiting[partition]
        if not self.growths[partition]:
            del self.growths[partition]
        for server in [name for name in self.releases if name not in self._state.servers]:
            del self.releases[server]

    def _of(self, uid: str, partition: str) -> list[tuple[str, object]]:
        """Return the requests and the GPUs that are released, each with its partition.

        What waits behind what cycles consider needs no cycle.
        """
        demand: list[tuple[str, object]] = []
        waiting = self.waiting[partition]
        if uid in waiting and not waiting.is_behind(uid):
            demand.append((partition, waiting[uid]))
        if uid in self.growths[partition]:
            demand.append((partition, self.growths[partition][uid]))
        names = (name for name, claim in self._state.places(uid) if claim in self.releases[name])
        return demand + [(self._state.servers[name].spec.partition, name) for name in names]
