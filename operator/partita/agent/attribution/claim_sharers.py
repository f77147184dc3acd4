"""Finds Pods that use a claim which is allocated for another Pod.

kubelet prepares a claim once for all Pods that name it. So the agent cannot refuse a Pod that names
a claim which is prepared already. Such a Pod has no allocation, and its containers have the limits
of the Pod that has one: together both could use twice the allocated memory.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import structlog

from partita.agent.allocations import AllocationReader
from partita.kube.client import CLAIMS, Kube
from partita.kube.errors import KubernetesError, NotFoundError
from partita.kube.events import EventSubject

__all__ = ["ONE_POD", "ClaimSharer", "ClaimSharers"]

ONE_POD = (
    "a claim is for one Pod: write resourceClaimTemplateName instead of resourceClaimName, then "
    "each Pod gets a claim of its own"
)
"""What to write where several Pods name one claim."""


@dataclass(frozen=True, slots=True)
class ClaimSharer:
    """A Pod that uses a claim of another Pod."""

    pod: EventSubject
    claim: str
    """Name of the claim."""
    owner: str
    """Name of the Pod that the claim is allocated for."""


class ClaimSharers:
    """The Pods that use claims of other Pods on one GPU.

    Parameters
    ----------
    kube
        The API server.
    ledger
        The allocations of the GPU.
    """

    def __init__(self, kube: Kube, ledger: AllocationReader) -> None:
        self._kube = kube
        self._ledger = ledger
        self._found: dict[str, ClaimSharer | None] = {}
        """By UID of the Pod; None if it uses no claim of another Pod."""
        self._log = structlog.get_logger(__name__)

    def of(self, pod: str | None) -> ClaimSharer | None:
        """Return what is known about the Pod with this UID."""
        return self._found.get(pod) if pod is not None else None

    @property
    def read(self) -> AbstractSet[str]:
        """UIDs of the Pods whose claims were read."""
        return self._found.keys()

    async def update(self, pods: AbstractSet[str]) -> None:
        """Read which claims are reserved for Pods without an allocation.

        kube-scheduler reserves a claim before it binds the Pod. So one read for each Pod is enough.

        Parameters
        ----------
        pods
            UIDs of all Pods without an allocation that have processes on the GPU.
        """
        self._found = {pod: found for pod, found in self._found.items() if pod in pods}
        new = pods - self._found.keys()
        if not new:
            return
        sharers: dict[str, ClaimSharer] = {}
        for entry in list(self._ledger.allocations.values()):
            name = entry.name
            try:
                claim = await self._kube.get(CLAIMS, name, entry.namespace)
            except NotFoundError:
                continue
            except KubernetesError as error:
                self._log.warning("claim not read", claim=name, error=str(error))
                return
            for one in (claim.get("status") or {}).get("reservedFor") or ():
                subject = EventSubject.pod(entry.namespace, one["name"], one["uid"])
                sharers[one["uid"]] = ClaimSharer(subject, name, entry.pod)
        self._found |= {pod: sharers.get(pod) for pod in new}
