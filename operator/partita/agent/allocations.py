"""Reads the allocations of the GPU from the operator's ledger, and the Pods that use them.

The ledger contains how much each job and each claim may use, and the Pod of each claim. The name of
a job's Pod is derived from the allocation. The Pod shows which processes belong to the allocation
and how the run ended.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import structlog
from pydantic import ValidationError

from partita.constants import ANNOTATION_APPLICATION
from partita.kube.client import JOBS, PODS, SERVERS, Kube
from partita.kube.errors import KubernetesError, NotFoundError
from partita.kube.events import EventSubject
from partita.models import Allocation, GPUServer
from partita.models.errors import describe
from partita.models.sharing import UnknownProcessesPolicy
from partita.pods.job_pod import pod_name
from partita.pods.own_claims import own_claim_name, own_claims

__all__ = [
    "AllocatedPod",
    "AllocationReader",
    "Key",
    "LedgerEntry",
    "Release",
    "allocated_pod",
    "entry_of_claim",
    "uses_allocation",
]

Key = tuple[str, int | str]
"""Key of a run in the ledger: UID of the job and number of the attempt, or UID of the claim and UID
of the Pod."""


@dataclass(frozen=True, slots=True)
class Release:
    """The end of an allocation's Pod, by the operator's clock."""

    since: datetime
    deadline: datetime
    """When kubelet kills the programs that are left."""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """The allocation of an attempt of a job, or of a claim, on this GPU."""

    uid: str
    """UID of the job or of the claim."""
    namespace: str
    name: str
    """Name of the job or of the claim."""
    attempt: int | None
    """The job's attempt; None for a claim."""
    memory: int
    """Bytes that it may use: its ceiling."""
    clients: int = 1
    """MPS client processes."""
    release: Release | None = None
    """The end of its Pod; None if the Pod is not being ended."""
    guaranteed: int = 0
    """Bytes that it may use in any case."""
    thread_percent: int = 100
    """Percent of the GPU's threads."""
    claim_pod: str = ""
    """Name of the Pod of a claim; empty for a job."""
    claim_pod_uid: str = ""
    """UID of the Pod of a claim; empty for a job."""
    application: str = ""
    """The application of a claim's Pod; empty for a job, whose Pod has it."""
    lasting: bool = False
    """Whether the Pod of a claim never ends by itself."""
    stores_usage: bool = True
    """Whether the agent of this GPU stores what its application uses. Of several GPUs, one does."""

    @property
    def is_claim(self) -> bool:
        """Whether it is the allocation of a claim."""
        return self.attempt is None

    @property
    def key(self) -> Key:
        """Key of the run."""
        return self.uid, self.claim_pod_uid if self.attempt is None else self.attempt

    @property
    def pod(self) -> str:
        """Name of the Pod."""
        return self.claim_pod if self.attempt is None else pod_name(self.name, self.attempt)

    def claim(self, server: str) -> str:
        """Return the name of the claim on a GPUServer."""
        return self.name if self.attempt is None else own_claim_name(self.pod, server)

    @property
    def run(self) -> str:
        """The run, as the beginning of a message to its user."""
        return f"Pod {self.pod}" if self.attempt is None else f"attempt {self.attempt}"

    @property
    def subject(self) -> EventSubject:
        """What an Event about the run is about: the job, or the Pod of the claim."""
        if self.attempt is None:
            return EventSubject.pod(self.namespace, self.claim_pod, self.claim_pod_uid)
        return EventSubject(JOBS.api_version, JOBS.kind, self.name, self.namespace, self.uid)

    @classmethod
    def of(cls, uid: str, allocation: Allocation) -> "LedgerEntry":
        """Read an entry of the ledger."""
        a = allocation
        release = None
        if a.releasing_since is not None and a.release_deadline is not None:
            release = Release(a.releasing_since, a.release_deadline)
        return cls(
            uid=uid,
            namespace=a.namespace,
            name=a.name,
            attempt=a.attempt,
            memory=a.memory_limit or a.memory,
            clients=a.clients,
            release=release,
            guaranteed=a.memory,
            thread_percent=a.thread_percent,
            claim_pod=a.pod,
            claim_pod_uid=a.pod_uid,
            application=a.application,
            lasting=a.lasting,
            stores_usage=a.stores_usage,
        )


@dataclass(frozen=True, slots=True)
class AllocatedPod:
    """The Pod of an allocation."""

    uid: str
    application: str
    """The application. If empty, no profile is stored."""


class AllocationReader:
    """Reads the ledger of one GPUServer.

    If the GPUServer cannot be parsed, the last valid ledger stays in use.
    """

    def __init__(self, kube: Kube, server: str) -> None:
        self._kube = kube
        self._name = server
        self._version = 0
        self.server: GPUServer | None = None
        """The GPUServer as last read; None before the first read."""
        self.allocations: dict[Key, LedgerEntry] = {}
        self.pods: dict[Key, AllocatedPod] = {}
        self.loaded = asyncio.Event()
        """Is set once the ledger was read."""
        self.changed = asyncio.Event()
        """Is set when a version of the ledger was read."""
        self.complete_at: float | None = None
        """Time of the last read of the ledger and all its Pods, from `time.time`."""
        self.problem: str = ""
        """Why the GPUServer cannot be parsed; empty if it can."""
        self._log = structlog.get_logger(__name__)

    @property
    def terminate_unknown(self) -> bool:
        """Whether processes in Pods without an allocation are terminated."""
        policy = self.server.spec.unknown_processes if self.server else None
        return policy is UnknownProcessesPolicy.TERMINATE

    async def read(self) -> list[tuple[LedgerEntry, AllocatedPod | None]]:
        """Read the ledger and the Pods that are new in it; return the removed allocations.

        Raises
        ------
        KubernetesError
            The GPUServer cannot be read.
        """
        began = time.time()
        return await self.apply(await self._kube.get(SERVERS, self._name), began)

    async def apply(
        self, body: Mapping[str, Any], at: float
    ) -> list[tuple[LedgerEntry, AllocatedPod | None]]:
        """Apply a version of the GPUServer and read the Pods that are new in its ledger.

        Answers to `read` and the watch can arrive in any order: an older version is ignored.

        Parameters
        ----------
        at
            Time in seconds at which this version was current.

        Returns
        -------
        list
            The removed allocations with their Pods.
        """
        version = int(body["metadata"]["resourceVersion"])
        if version < self._version:
            return []
        self._version = version
        try:
            self.server = GPUServer.parse(body)
        except ValidationError as error:
            problem = describe(error)
            if problem != self.problem:
                self._log.warning("GPUServer unreadable", server=self._name, problem=problem)
            self.problem = problem
            return []
        self.problem = ""
        found = [LedgerEntry.of(uid, a) for uid, a in self.server.status.allocations.items()]
        old, self.allocations = self.allocations, {a.key: a for a in found}
        self.loaded.set()
        removed = [
            (allocation, self.pods.pop(key, None))
            for key, allocation in old.items()
            if key not in self.allocations
        ]
        if await self.read_pods():
            self.complete_at = at
        self.changed.set()
        return removed

    async def read_pods(self) -> bool:
        """Read the Pods that are not known yet; return whether the API server answered."""
        new = [a for a in self.allocations.values() if a.key not in self.pods]
        return all([await self._read_pod(allocation) for allocation in new])

    async def _read_pod(self, allocation: LedgerEntry) -> bool:
        """Read the Pod of an allocation; return whether the API server answered.

        The ledger itself says which Pod a claim has.
        """
        if allocation.is_claim:
            if allocation.claim_pod_uid:
                self.pods[allocation.key] = AllocatedPod(
                    allocation.claim_pod_uid, allocation.application
                )
            return True
        try:
            body = await self._kube.get(PODS, allocation.pod, allocation.namespace)
        except NotFoundError:
            return True  # the allocation is written before the Pod is created
        except KubernetesError as error:
            self._log.info("Pod not read", pod=allocation.pod, error=str(error))
            return False
        pod = allocated_pod(body, allocation, self._name)
        if pod is not None:
            self.pods[allocation.key] = pod
        return True

    def claim(self, uid: str, namespace: str, name: str) -> LedgerEntry | None:
        """Return the allocation of a claim; None if the ledger does not contain it."""
        return entry_of_claim(self.allocations.values(), self._name, uid, namespace, name)

    def claim_name(self, entry: LedgerEntry) -> str:
        """Return the name of the claim of an allocation."""
        return entry.claim(self._name)

    def released(self) -> bool:
        """Return whether the last ledger that was read has no allocation."""
        return self.loaded.is_set() and not self.allocations

    def by_pod(self) -> dict[str, LedgerEntry]:
        """Return the allocations by the UID of their Pod."""
        return {
            pod.uid: self.allocations[key]
            for key, pod in self.pods.items()
            if key in self.allocations
        }


def entry_of_claim(
    entries: Iterable[LedgerEntry], server: str, uid: str, namespace: str, name: str
) -> LedgerEntry | None:
    """Return the allocation of a claim; None if the ledger does not contain it.

    The ledger contains the UID of a claim, or the job for which the operator has created it.

    Parameters
    ----------
    entries
        The entries of the ledger.
    server
        The GPUServer of the ledger.
    """
    return next(
        (
            entry
            for entry in entries
            if (entry.namespace, entry.claim(server)) == (namespace, name)
            and (not entry.is_claim or entry.uid == uid)
        ),
        None,
    )


def uses_allocation(body: Mapping[str, Any], entry: LedgerEntry, server: str) -> bool:
    """Return whether a Pod is that of an allocation."""
    if entry.is_claim:
        return bool(body["metadata"]["uid"] == entry.claim_pod_uid)
    return allocated_pod(body, entry, server) is not None


def allocated_pod(
    body: Mapping[str, Any], allocation: LedgerEntry, server: str
) -> AllocatedPod | None:
    """Read the Pod of a job's allocation; None if it is another Pod.

    Parameters
    ----------
    server
        The GPUServer of this agent.
    """
    meta = body["metadata"]
    annotations = meta.get("annotations") or {}
    owners = {o["uid"] for o in meta.get("ownerReferences") or () if o.get("controller")}
    claim = allocation.claim(server)
    other = meta["name"] != allocation.pod or bool(owners - {allocation.uid})
    if other or claim not in own_claims(body):
        # Admission allows only the operator to create a Pod that names this claim, and the name
        # never changes. Users may remove the Pod's owner reference.
        return None
    return AllocatedPod(meta["uid"], annotations.get(ANNOTATION_APPLICATION, ""))
