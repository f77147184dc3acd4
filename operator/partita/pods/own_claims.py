"""The ResourceClaims of the Pods that the operator creates: one for each such Pod.

The name of the claim is that of the Pod with the end `.partita.dev`. Admission lets only the
operator create claims with such names, and Pods that name them
(`manifests/base/claims-admission.yaml`).
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from partita.constants import (
    ALLOCATION_GATE,
    CAPACITY_MEMORY,
    CAPACITY_THREADS,
    CLAIM_FINALIZER,
    GROUP,
)
from partita.models.device_class import device_class_of
from partita.models.quantities import format_memory

__all__ = [
    "NO_CLAIM",
    "REQUEST",
    "WITHOUT_CLAIM",
    "build_own_claim",
    "is_own_claim",
    "own_claim",
    "own_claim_name",
    "use_claim",
]

REQUEST: Final = "gpu"
"""Name of the only request of such a claim."""
_SUFFIX: Final = f".{GROUP}"
_ENTRY: Final = "partita-gpu"
"""Name of the claim within the Pod. A user's template may have claims of its own."""
NO_CLAIM: Final = "NoClaim"
"""Reason of a Pod of a user that has Partita's scheduling gate alone, and so never starts."""
WITHOUT_CLAIM: Final = (
    f"the Pod has the scheduling gate {ALLOCATION_GATE} and no claim of Partita, so nothing "
    "removes the gate: name a ResourceClaimTemplate of a class *.gpu.partita.dev in "
    "spec.resourceClaims, or remove the gate"
)
"""What to write in such a Pod."""

Body = Mapping[str, Any]


def own_claim_name(pod: str) -> str:
    """Return the name of the claim of a Pod."""
    return f"{pod}{_SUFFIX}"


def is_own_claim(name: str) -> bool:
    """Return whether a claim has the name of one that the operator creates."""
    return name.endswith(_SUFFIX)


def own_claim(pod: Body) -> str:
    """Return the name of the operator's claim in the spec of a Pod; empty if it names none."""
    entries = (pod.get("spec") or {}).get("resourceClaims") or ()
    names = (entry.get("resourceClaimName") or "" for entry in entries)
    return next(filter(is_own_claim, names), "")


def use_claim(spec: dict[str, Any], claim: str) -> None:
    """Add a claim to the spec of a Pod, for all its containers."""
    entry = {"name": _ENTRY, "resourceClaimName": claim}
    spec["resourceClaims"] = [*(spec.get("resourceClaims") or ()), entry]
    for container in _containers(spec):
        resources = container["resources"] = container.get("resources") or {}
        resources["claims"] = [*(resources.get("claims") or ()), {"name": _ENTRY}]


def build_own_claim(
    name: str,
    namespace: str,
    partition: str,
    *,
    memory: int,
    threads: int = 100,
    count: int = 1,
    labels: Mapping[str, str],
    owner: Mapping[str, Any],
) -> dict[str, Any]:
    """Build the claim of a Pod.

    It has the finalizer of allocated claims from the beginning, which saves a write.

    Parameters
    ----------
    partition
        The partition, whose device class it names.
    memory, threads
        Bytes of each GPU, and percent of its threads.
    count
        Number of GPUs.
    owner
        The owner reference to the object for which the Pod is created.
    """
    amounts = {
        CAPACITY_MEMORY: format_memory(memory),
        CAPACITY_THREADS: str(threads),
    }
    exactly = {
        "deviceClassName": device_class_of(partition),
        "count": count,
        "capacity": {"requests": amounts},
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": dict(labels),
            "finalizers": [CLAIM_FINALIZER],
            "ownerReferences": [dict(owner)],
        },
        "spec": {"devices": {"requests": [{"name": REQUEST, "exactly": exactly}]}},
    }


def _containers(spec: Body) -> Iterator[dict[str, Any]]:
    for kind in ("initContainers", "containers"):
        yield from spec.get(kind) or ()
