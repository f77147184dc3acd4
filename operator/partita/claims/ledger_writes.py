"""Writes the ledger: one patch per GPU, rejected if the GPUServer was written meanwhile."""

from collections.abc import Callable

import structlog

from partita.kube.client import SERVERS, Kube
from partita.kube.errors import ConflictError, NotFoundError
from partita.models import GPUPartition, GPUServer
from partita.scheduling.agent_reports import context_memory, max_clients
from partita.scheduling.ledger import ServerChange, allocations_after, is_same, overcommitted
from partita.store.state import State

__all__ = ["fits", "write_ledger"]

_TRIES = 5
"""An agent's reports change the resource version too; five tries suffice at any report rate."""


async def write_ledger(
    kube: Kube,
    state: State,
    name: str,
    change: ServerChange,
    sound: Callable[[GPUServer, ServerChange], bool],
) -> bool:
    """Write one cycle's changes to one GPU's ledger.

    Parameters
    ----------
    sound
        Returns whether the ledger would be valid after the change. It is called again after a
        conflict with another write.

    Returns
    -------
    bool
        False if the change was not written; the releases may still have to be repeated.

    Raises
    ------
    KubernetesError
        If the API server is unavailable or refuses the request. An immediate retry would not help.
    """
    for _ in range(_TRIES):
        server = state.servers.get(name)
        if server is None or not sound(server, change):
            return False
        if allocations_after(server, change) == server.status.allocations:
            return True  # an earlier try took effect
        try:
            body = await kube.patch(
                SERVERS,
                name,
                change.patch(server.status.allocations),
                subresource="status",
                resource_version=server.metadata.resource_version,
            )
        except ConflictError:
            try:
                state.apply_server(await kube.get(SERVERS, name))
            except NotFoundError:
                return False
            change = _unless_renewed(change, server, state.servers.get(name))
            continue
        except NotFoundError:
            return False
        state.apply_server(body, ours=True)
        return True
    log = structlog.get_logger().bind(part="ledger", server=name)
    log.warning("ledger not written: others write all the time")
    return False


def fits(server: GPUServer, change: ServerChange, partition: GPUPartition) -> bool:
    """Return whether a GPU has room for its allocations after a change."""
    max_jobs = min(server.spec.max_jobs, partition.spec.sharing.max_jobs_per_gpu)
    return not overcommitted(
        allocations_after(server, change),
        memory=partition.spec.allocatable(server.status.memory),
        max_jobs=max_jobs,
        max_clients=max_clients(server) or max_jobs,
        context_memory=context_memory(server),
    )


def _unless_renewed(change: ServerChange, before: GPUServer, now: GPUServer | None) -> ServerChange:
    """Drop what concerns allocations that another leader has released or replaced meanwhile."""
    old = before.status.allocations
    there = now.status.allocations if now is not None else {}
    same = {
        uid
        for uid in change.release | change.mark.keys() | change.grow.keys()
        if is_same(there.get(uid), old.get(uid))
    }
    return ServerChange(
        release=change.release & same,
        allocate=change.allocate,
        mark={uid: marked for uid, marked in change.mark.items() if uid in same},
        grow={uid: grown for uid, grown in change.grow.items() if uid in same},
    )
