"""Removes the scheduling gate of a Pod whose claim is allocated."""

from typing import Any

from partita.constants import ALLOCATION_GATE
from partita.kube.client import PODS, Kube
from partita.store.views import PodView

__all__ = ["remove_gate"]


async def remove_gate(kube: Kube, pod: PodView) -> dict[str, Any]:
    """Remove Partita's scheduling gate from a Pod, and return the Pod.

    Raises
    ------
    KubernetesError
        The API server refuses the write, or is not available.
    """
    others = [{"name": gate} for gate in pod.gates if gate != ALLOCATION_GATE]
    patch = {"metadata": {"uid": pod.uid}, "spec": {"schedulingGates": others or None}}
    return await kube.patch(PODS, pod.name, patch, namespace=pod.namespace)
