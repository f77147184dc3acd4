"""The PodDisruptionBudget of a server Pod."""

from typing import Any

from partita.constants import LABEL_PARTITION, LABEL_SERVER
from partita.models import GPUServer

__all__ = ["budget_name", "build_budget"]

_DIGITS = 8
"""Leading characters of the GPUServer's UID that the name contains."""


def budget_name(server: GPUServer) -> str:
    """Return the name of a GPUServer's budget.

    The name contains part of the UID because Kubernetes' garbage collector may remove the budget
    of an earlier GPUServer with the same name only after the next GPUServer has its own.
    """
    return f"{server.metadata.name}-{server.metadata.uid[:_DIGITS]}"


def build_budget(server: GPUServer, namespace: str) -> dict[str, Any]:
    """Build the budget that prevents the eviction API from deleting a server Pod in use.

    Parameters
    ----------
    namespace
        Namespace of the server Pods.

    Notes
    -----
    Each Pod has its own budget, with `minAvailable: 1`. With `maxUnavailable` or a percentage
    Kubernetes would need the scale subresource of the Pod's controller, which a GPUServer lacks
    (https://kubernetes.io/docs/tasks/run-application/configure-pdb/, "Arbitrary workloads and
    arbitrary selectors").
    """
    meta = server.metadata
    return {
        "metadata": {
            "name": budget_name(server),
            "namespace": namespace,
            "labels": {LABEL_SERVER: meta.name, LABEL_PARTITION: server.spec.partition},
            "ownerReferences": [server.owner_reference()],
        },
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {LABEL_SERVER: meta.name}}},
    }
