"""What is allocated on the GPU: the operator's ledger, with the Pods that run on it.

The ledger says how much each job may use. The Pod of an allocation, whose name follows from it,
shows which processes belong to the job and how the run ended.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from partita.constants import ANNOTATION_APPLICATION, DEVICE_RESOURCE_PREFIX
from partita.models import Allocation
from partita.pods.job_pod import pod_name

__all__ = ["AllocatedPod", "AttemptAllocation", "run_of"]


@dataclass(frozen=True, slots=True)
class AttemptAllocation:
    """One attempt of a job on this GPU."""

    job: str
    """The job's UID."""
    namespace: str
    name: str
    attempt: int
    memory: int
    """Bytes allocated."""
    clients: int = 1
    """MPS client processes allocated."""

    @property
    def key(self) -> tuple[str, int]:
        """What tells an attempt from all others."""
        return self.job, self.attempt

    @property
    def pod(self) -> str:
        """Name of its Pod."""
        return pod_name(self.name, self.attempt)

    @classmethod
    def of(cls, job: str, allocation: Allocation) -> "AttemptAllocation":
        """Read an entry of the ledger."""
        return cls(
            job,
            allocation.namespace,
            allocation.name,
            allocation.attempt,
            allocation.memory,
            allocation.clients,
        )


@dataclass(frozen=True, slots=True)
class AllocatedPod:
    """The Pod of an allocation."""

    uid: str
    application: str
    """Empty for a job that names none: nothing is kept of it."""
    devices: frozenset[str]
    """The extended resources of the GPUs that it has."""


def run_of(body: Mapping[str, Any], allocation: AttemptAllocation) -> AllocatedPod | None:
    """Read an allocation's Pod; None if somebody else's Pod has its name."""
    meta = body["metadata"]
    annotations = meta.get("annotations") or {}
    requests = [
        (container.get("resources") or {}).get("limits") or {}
        for container in body["spec"].get("containers") or ()
    ]
    devices = {name for r in requests for name in r if name.startswith(DEVICE_RESOURCE_PREFIX)}
    owners = {o["uid"] for o in meta.get("ownerReferences") or () if o.get("controller")}
    if not devices or owners - {allocation.job}:
        # Only the operator may give a Pod our devices (admission), and they never change. Its
        # owner may take the owner reference away.
        return None
    return AllocatedPod(
        meta["uid"], annotations.get(ANNOTATION_APPLICATION, ""), frozenset(devices)
    )
