"""Reads the allocations of the GPU from the operator's ledger, and the Pods that use them.

The ledger contains how much each claim may use, and its Pod. The Pod shows which processes belong
to the allocation.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import structlog
from pydantic import ValidationError
from typing_extensions import override

from partita.kube.client import JOBS, PODS, SERVERS, Kube
from partita.kube.errors import KubernetesError, NotFoundError
from partita.kube.events import EventSubject
from partita.kube.watch import watch
from partita.models import Allocation, GPUServer
from partita.models.errors import describe

__all__ = ["READ_WITHIN", "AllocationReader", "Key", "LedgerEntry", "read_pod"]

READ_WITHIN: Final = 2.0
"""Seconds to read Pods where a check waits for them: a request that fails is repeated for minutes.
"""

_FIRST_PAUSE: Final = 0.5
"""Seconds before a failed watch is opened again; doubled after each further failure."""
_LONGEST_PAUSE: Final = 8.0

Key = tuple[str, str]
"""Key of a run in the ledger: UID of the claim, and UID of the Pod."""


class LedgerEntry(Allocation):
    """The allocation of a claim on this GPU."""

    uid: str
    """UID of the claim."""

    @property
    def run(self) -> str:
        """The run, as the beginning of a message to its user."""
        return f"attempt {self.attempt}" if self.job else f"Pod {self.pod}"

    @property
    def subject(self) -> EventSubject:
        """What an Event about the run is about: the job, or a Pod that belongs to none."""
        if not self.job:
            return EventSubject.pod(self.namespace, self.pod, self.pod_uid)
        return EventSubject(JOBS.api_version, JOBS.kind, self.job, self.namespace, self.job_uid)

    @override
    def __hash__(self) -> int:
        """Return the hash of a field that tells entries apart: it is needed for each sample."""
        return hash(self.pod_uid)

    @property
    def key(self) -> Key:
        """Key of the run."""
        return self.uid, self.pod_uid

    @classmethod
    def of(cls, uid: str, allocation: Allocation) -> "LedgerEntry":
        """Read an entry of the ledger."""
        return cls.model_construct(uid=uid, **dict(allocation))


async def read_pod(kube: Kube, entry: LedgerEntry) -> dict[str, Any] | None:
    """Read the Pod of an allocation; None if it is gone, also if another one has its name.

    Raises
    ------
    KubernetesError
        It cannot be read.
    """
    try:
        pod = await kube.get(PODS, entry.pod, entry.namespace)
    except NotFoundError:
        return None
    return pod if pod["metadata"]["uid"] == entry.pod_uid else None


class AllocationReader:
    """Reads the ledger of one GPUServer.

    If the GPUServer cannot be parsed, the last valid ledger stays in use.
    """

    def __init__(self, kube: Kube, server: str) -> None:
        self._kube = kube
        self._name = server
        self._version = 0
        self.server: GPUServer
        """The GPUServer as last read; set with `loaded`."""
        self.allocations: dict[Key, LedgerEntry] = {}
        self.loaded = asyncio.Event()
        """Is set once the ledger was read."""
        self.changed = asyncio.Event()
        """Is set when a version of the ledger was read."""
        self.complete_at: float | None = None
        """Time of the last read of the ledger, from `time.time`."""
        self.problem: str = ""
        """Why the GPUServer cannot be parsed; empty if it can."""
        self._log = structlog.get_logger(__name__).bind(server=server)

    async def versions(self) -> AsyncIterator[dict[str, Any]]:
        """Yield each version of the GPUServer, without end.

        The API server ends a watch after a few minutes. The next watch begins with the current
        version, so a version that was missed is made up for.
        """
        pause = _FIRST_PAUSE
        while True:
            try:
                async with watch(self._kube, SERVERS, name=self._name) as events:
                    async for kind, body in events:
                        pause = _FIRST_PAUSE
                        if kind == "DELETED":
                            self._log.warning("the GPUServer has been deleted")
                        elif kind != "BOOKMARK":
                            yield body
                continue
            except KubernetesError as error:
                self._log.warning("GPUServer not watched", error=str(error))
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def read(self) -> list[LedgerEntry]:
        """Read the ledger; return the removed allocations.

        Raises
        ------
        KubernetesError
            The GPUServer cannot be read.
        """
        began = time.time()
        return self.apply(await self._kube.get(SERVERS, self._name), began)

    def apply(self, body: Mapping[str, Any], at: float) -> list[LedgerEntry]:
        """Apply a version of the GPUServer; return the removed allocations.

        Answers to `read` and the watch can arrive in any order: an older version is ignored.

        Parameters
        ----------
        at
            Time in seconds at which this version was current.
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
                self._log.warning("GPUServer unreadable", problem=problem)
            self.problem = problem
            return []
        self.problem = ""
        found = [LedgerEntry.of(uid, a) for uid, a in self.server.status.allocations.items()]
        old = self.allocations
        # An entry that is as before stays the same object, which is quick to compare.
        self.allocations = {a.key: a if a != old.get(a.key) else old[a.key] for a in found}
        self.complete_at = at
        self.loaded.set()
        self.changed.set()
        return [entry for key, entry in old.items() if key not in self.allocations]

    def claim(self, uid: str) -> LedgerEntry | None:
        """Return the allocation of a claim, by its UID; None if the ledger does not contain it."""
        return next((entry for entry in self.allocations.values() if entry.uid == uid), None)

    def released(self) -> bool:
        """Return whether the last ledger that was read has no allocation."""
        return self.loaded.is_set() and not self.allocations

    def by_pod(self) -> dict[str, LedgerEntry]:
        """Return the allocations by the UID of their Pod."""
        return {entry.pod_uid: entry for entry in self.allocations.values()}
