"""The PodDisruptionBudget of a server Pod."""

from typing import Any

from partita.constants import LABEL_PARTITION, LABEL_SERVER
from partita.models import GPUServer

__all__ = ["budget_name", "build_budget"]

_DIGITS = 8
"""Of the GPUServer's UID in the name."""


def budget_name(server: GPUServer) -> str:
    """Name a GPUServer's budget.

    By its UID, too: Kubernetes' garbage collector may remove the budget of an earlier GPUServer of
    that name only after the next one has its own.
    """
    return f"{server.metadata.name}-{server.metadata.uid[:_DIGITS]}"


def build_budget(server: GPUServer, namespace: str) -> dict[str, Any]:
    """Build the budget that keeps the eviction API from ending a server Pod while it is needed.

    Parameters
    ----------
    namespace
        The server Pods' namespace.

    Notes
    -----
    There is one for each Pod, with `minAvailable: 1`. `maxUnavailable`, or a percentage, would make
    Kubernetes look for the scale subresource of the Pod's controller, which a GPUServer has not
    (https://kubernetes.io/docs/tasks/run-application/configure-pdb/, "Arbitrary workloads and
    arbitrary selectors").
    """
    meta = server.metadata
    return {
        "metadata": {
            "name": budget_name(server),
            "namespace": namespace,
            "labels": {LABEL_SERVER: meta.name, LABEL_PARTITION: server.spec.partition},
            "ownerReferences": [
                {
                    "apiVersion": server.api_version(),
                    "kind": "GPUServer",
                    "name": meta.name,
                    "uid": meta.uid,
                    "controller": True,
                    "blockOwnerDeletion": False,
                }
            ],
        },
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {LABEL_SERVER: meta.name}}},
    }
