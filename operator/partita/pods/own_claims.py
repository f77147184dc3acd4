"""The ResourceClaims of the Pods that the operator creates: one for each GPU of such a Pod.

A job's attempt has one on each of its GPUs, and a probe Pod has one. The name of the claim follows
from the Pod and the GPUServer, and ends with `.partita.dev`. Admission lets only the operator
create claims with such names, and Pods that name them (`manifests/base/claims-admission.yaml`).
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from partita.constants import CAPACITY_MEMORY, CAPACITY_THREADS, CLAIM_FINALIZER, GROUP
from partita.models import Allocation
from partita.models.device_class import device_class_of
from partita.models.quantities import format_memory

__all__ = [
    "REQUEST",
    "build_own_claim",
    "is_own_claim",
    "own_claim_name",
    "own_claims",
    "use_claims",
]

REQUEST: Final = "gpu"
"""Name of the only request of such a claim."""
_SUFFIX: Final = f".{GROUP}"
_ENTRY: Final = "partita-gpu"
"""Begins the names of the claims within the Pod. A user's template may have claims of its own."""

Body = Mapping[str, Any]


def own_claim_name(pod: str, server: str) -> str:
    """Return the name of the claim of a Pod on a GPUServer."""
    return f"{pod}.{server}{_SUFFIX}"


def is_own_claim(name: str) -> bool:
    """Return whether a claim has the name of one that the operator creates."""
    return name.endswith(_SUFFIX)


def own_claims(pod: Body) -> tuple[str, ...]:
    """Return the names of the operator's claims in the spec of a Pod, which never change."""
    entries = (pod.get("spec") or {}).get("resourceClaims") or ()
    names = (entry.get("resourceClaimName") or "" for entry in entries)
    return tuple(filter(is_own_claim, names))


def use_claims(spec: dict[str, Any], claims: tuple[str, ...]) -> None:
    """Add claims to the spec of a Pod, for all its containers."""
    entries = [
        {"name": f"{_ENTRY}-{number}", "resourceClaimName": claim}
        for number, claim in enumerate(claims)
    ]
    spec["resourceClaims"] = [*(spec.get("resourceClaims") or ()), *entries]
    used = [{"name": entry["name"]} for entry in entries]
    for container in _containers(spec):
        resources = container["resources"] = container.get("resources") or {}
        resources["claims"] = [*(resources.get("claims") or ()), *used]


def build_own_claim(
    name: str,
    namespace: str,
    partition: str,
    entry: Allocation,
    *,
    labels: Mapping[str, str],
    owner: Mapping[str, Any],
) -> dict[str, Any]:
    """Build the claim of a Pod on one GPU.

    It has the finalizer of allocated claims from the beginning, because it is allocated at once.

    Parameters
    ----------
    partition
        The partition, whose device class it names.
    entry
        The share of the GPU that it gets.
    owner
        The owner reference to the object for which the Pod is created.
    """
    amounts = {
        CAPACITY_MEMORY: format_memory(entry.memory),
        CAPACITY_THREADS: str(entry.thread_percent),
    }
    exactly = {
        "deviceClassName": device_class_of(partition),
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
