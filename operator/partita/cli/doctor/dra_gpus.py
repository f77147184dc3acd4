"""The whole GPUs that NVIDIA's DRA driver offers. Pure functions.

Its devices of type `gpu` are whole GPUs (kubernetes-sigs/dra-driver-nvidia-gpu,
site/content/docs/reference/resourceslice-attributes.md).
"""

from typing import Any

from partita.cli.doctor.cluster_facts import ClusterFacts
from partita.pods.gpu_claim import NVIDIA_DRIVER

__all__ = ["dra_gpus", "free_dra_gpus", "nodes_with_dra_gpus"]

Json = dict[str, Any]


def nodes_with_dra_gpus(facts: ClusterFacts) -> set[str]:
    """Return the names of the nodes whose GPUs are offered by DRA."""
    return {node for node, _ in _devices(facts)}


def dra_gpus(facts: ClusterFacts, node: str) -> int:
    """Return how many whole GPUs of a node are offered by DRA."""
    return sum(where == node for where, _ in _devices(facts))


def free_dra_gpus(facts: ClusterFacts, node: str) -> int:
    """Return how many of these GPUs no claim has."""
    taken = {
        (result.get("pool"), result.get("device"))
        for claim in facts.claims
        for result in _results(claim)
        if result.get("driver") == NVIDIA_DRIVER
    }
    return sum(where == node and device not in taken for where, device in _devices(facts))


def _devices(facts: ClusterFacts) -> list[tuple[str, tuple[str, str]]]:
    """Return node, pool and name of each whole GPU."""
    return [
        (spec.get("nodeName", ""), (spec["pool"]["name"], device["name"]))
        for spec in (one["spec"] for one in facts.slices)
        if spec.get("driver") == NVIDIA_DRIVER
        for device in spec.get("devices") or ()
        if (device.get("attributes") or {}).get("type", {}).get("string") == "gpu"
    ]


def _results(claim: Json) -> list[Json]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return list((allocation.get("devices") or {}).get("results") or ())
