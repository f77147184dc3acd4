"""The objects of the test on a GPU, and where it can run. Pure functions."""

import secrets
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from partita.cli.doctor.cluster_facts import ClusterFacts
from partita.cli.doctor.dra_gpus import free_dra_gpus
from partita.cli.doctor.node_checks import free_gpus, gpu_nodes, is_schedulable
from partita.constants import GPU_RESOURCE, GROUP, VERSION
from partita.models import GPUPartition, GPUServer, Resource, SharingMode
from partita.models.quantities import MEBI
from partita.pods.gpu_claim import NVIDIA_CLASS, POD_CLAIM
from partita.pods.probe_pod import RESTRICTED_CONTAINER, RESTRICTED_POD

__all__ = ["LABEL", "SHARE", "Place", "choose_place", "claim", "job", "new_name", "pod"]

Json = dict[str, Any]
R = TypeVar("R", bound=Resource)

SHARE: Final = 1024
"""MiB of each test program: small, but more than CUDA takes for a context (an assumption)."""
LABEL: Final = {"app.kubernetes.io/managed-by": "partita-doctor"}
"""Label of all objects that the test creates."""
_DEADLINE: Final = 300
"""Seconds after which Kubernetes ends a test Pod that nobody has deleted."""
_HOLD_ALONE: Final = 2
"""Seconds that a Pod which reads NVML itself keeps its memory: the neighbour works meanwhile."""
_HOST: Final = "kubernetes.io/hostname"


@dataclass(frozen=True, slots=True)
class Place:
    """Where the test can run.

    Attributes
    ----------
    node
        The node; empty if there is none.
    partition
        A partition with room for two jobs; empty if the test needs a whole GPU.
    claimed
        Whether the whole GPU is offered by DRA, so that the Pod needs a claim.
    reason
        Why it cannot run; empty if it can.
    """

    node: str = ""
    partition: str = ""
    claimed: bool = False
    reason: str = ""


def choose_place(facts: ClusterFacts, only: str) -> Place:
    """Return a partition with room for two jobs, or else a node with a free GPU.

    Parameters
    ----------
    only
        Name of the only node that may be used; empty for any.
    """
    if not facts.operator_problem:
        for server in _read(GPUServer, facts.servers):
            if only in {"", server.status.node} and _has_room(server, facts):
                return Place(server.status.node, server.spec.partition)
    unread = facts.unread("nodes", "pods", "resourceslices", "resourceclaims")
    if unread:
        return Place(reason=f"no free GPU is known: {unread}")
    for node in gpu_nodes(facts):
        name = node["metadata"]["name"]
        if only not in {"", name}:
            continue
        if free_gpus(facts, node) > 0:
            return Place(name)
        if is_schedulable(node) and free_dra_gpus(facts, name) > 0:
            return Place(name, claimed=True)
    where = f"on node {only}" if only else "in the cluster"
    return Place(reason=f"no GPU is free {where}, and no partition has room for two small jobs")


def _has_room(server: GPUServer, facts: ClusterFacts) -> bool:
    named = [p for p in facts.partitions if p["metadata"]["name"] == server.spec.partition]
    partition = next(_read(GPUPartition, named), None)
    if (
        partition is None
        or not server.status.holds("Ready")
        or server.spec.mode is not SharingMode.MPS
    ):
        return False
    if partition.spec.slices or server.spec.drain_since is not None:
        return False
    taken = sum(held.memory for held in server.status.allocations.values())
    free = partition.spec.allocatable(server.status.memory) - taken
    slots = server.spec.max_jobs - sum(held.slots for held in server.status.allocations.values())
    alone = any(held.alone for held in server.status.allocations.values())
    return not alone and slots >= 2 and free >= 2 * SHARE * MEBI


def _read(model: type[R], bodies: Iterable[Json]) -> Iterator[R]:
    """Parse objects, without those that cannot be read."""
    for body in bodies:
        with suppress(ValidationError):
            yield model.parse(body)


def new_name() -> str:
    """Return the common part of the names of one run."""
    return f"partita-doctor-{secrets.token_hex(3)}"


def pod(name: str, namespace: str, place: Place, image: str, *, runtime_class: str) -> Json:
    """Build the Pod that tests a whole GPU."""
    spec = _spec(place, image, "alone", _HOLD_ALONE)
    if place.claimed:
        spec["resourceClaims"] = [{"name": POD_CLAIM, "resourceClaimName": name}]
        spec["containers"][0]["resources"] = {"claims": [{"name": POD_CLAIM}]}
    else:
        spec["containers"][0]["resources"] = {"limits": {GPU_RESOURCE: "1"}}
    spec["tolerations"] = [{"key": GPU_RESOURCE, "operator": "Exists", "effect": "NoSchedule"}]
    spec |= {"restartPolicy": "Never", "activeDeadlineSeconds": _DEADLINE}
    if runtime_class:
        spec["runtimeClassName"] = runtime_class
    return {"metadata": _metadata(name, namespace), "spec": spec}


def claim(name: str, namespace: str) -> Json:
    """Build the claim of that Pod."""
    request = {"name": POD_CLAIM, "exactly": {"deviceClassName": NVIDIA_CLASS}}
    return {"metadata": _metadata(name, namespace), "spec": {"devices": {"requests": [request]}}}


def job(name: str, namespace: str, place: Place, image: str, role: str, *, hold: int) -> Json:
    """Build a SharedGPUJob that runs one role of `partita.agent.check`."""
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "metadata": _metadata(name, namespace),
        "spec": {
            "partition": place.partition,
            "gpuMemory": f"{SHARE}Mi",
            "retry": {"limit": 0, "outOfMemory": {"limit": 0}, "notStarted": {"limit": 0}},
            "activeDeadlineSeconds": _DEADLINE,
            "ttlSecondsAfterFinished": _DEADLINE,
            "template": {"spec": _spec(place, image, role, hold)},
        },
    }


def _metadata(name: str, namespace: str) -> Json:
    return {"name": name, "namespace": namespace, "labels": LABEL}


def _spec(place: Place, image: str, role: str, seconds: int) -> Json:
    """Return a Pod's spec that Pod Security `restricted` allows."""
    return {
        "automountServiceAccountToken": False,
        "nodeSelector": {_HOST: place.node},
        "securityContext": RESTRICTED_POD,
        "containers": [
            {
                "name": "check",
                "image": image,
                "command": [
                    "python3",
                    "-m",
                    "partita.agent.check",
                    role,
                    str(SHARE),
                    str(seconds),
                ],
                # NVML needs `utility`, the CUDA driver `compute`: https://docs.nvidia.com/
                # datacenter/cloud-native/container-toolkit/latest/docker-specialized.html.
                "env": [{"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "compute,utility"}],
                "securityContext": RESTRICTED_CONTAINER,
            }
        ],
    }
