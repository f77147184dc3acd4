"""Assigns each watched kind to the method that stores its objects in the state."""

from partita.kube.client import (
    CLAIMS,
    JOBS,
    NAMESPACES,
    NODES,
    PARTITIONS,
    PODS,
    PROFILES,
    SERVERS,
    Kind,
)
from partita.store.informer import Apply
from partita.store.state import State

__all__ = ["feeds"]


def feeds(state: State) -> dict[Kind, Apply]:
    """Return the state's method for the objects of each kind, in the order to list the kinds.

    Pods come after the ledgers with their allocations, and after the jobs and claims that they
    belong to.
    """
    return {
        NODES: state.apply_node,
        NAMESPACES: state.apply_namespace,
        PARTITIONS: state.apply_partition,
        PROFILES: state.apply_profile,
        SERVERS: state.apply_server,
        JOBS: state.apply_job,
        CLAIMS: state.apply_claim,
        PODS: state.apply_pod,
    }
