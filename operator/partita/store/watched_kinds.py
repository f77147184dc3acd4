"""What the state keeps of each watched kind, and the method that stores its objects there."""

from collections.abc import Mapping
from typing import NamedTuple

from partita.kube.kinds import (
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
from partita.store.comparison import Kept
from partita.store.informer import Apply
from partita.store.state import State

__all__ = ["WatchedKind", "feeds"]


class WatchedKind(NamedTuple):
    """One kind in the state."""

    apply: Apply
    """Stores an object."""
    objects: Mapping[str, Kept]
    """The objects that are stored."""


def feeds(state: State) -> dict[Kind, WatchedKind]:
    """Return what the state has of each kind, in the order to list the kinds.

    Pods come after the ledgers with their allocations, and after the jobs and claims that they
    belong to.
    """
    return {
        NODES: WatchedKind(state.apply_node, state.nodes),
        NAMESPACES: WatchedKind(state.apply_namespace, state.namespaces),
        PARTITIONS: WatchedKind(state.apply_partition, state.partitions),
        PROFILES: WatchedKind(state.apply_profile, state.profiles.objects),
        SERVERS: WatchedKind(state.apply_server, state.servers),
        JOBS: WatchedKind(state.apply_job, state.jobs),
        CLAIMS: WatchedKind(state.apply_claim, state.claims),
        PODS: WatchedKind(state.apply_pod, state.pods),
    }
