"""Content of the page as flat JSON objects by key, and the difference of two versions.

Pure functions. A viewer sees names only in namespaces whose jobs the viewer may list. Jobs and
slices of other namespaces have only a size and an opaque key.
"""

import re
import secrets
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from partita.console.lists import ended_counts, namespaces, row_of
from partita.console.view import (
    GPUView,
    PartitionView,
    SliceView,
    active_jobs,
    partitions_view,
)
from partita.models import GPUPartition, GPUServer
from partita.models.partition_status import PolicyStatus, ShadowStatus
from partita.store.state import State

__all__ = ["PageState", "Patch", "changes", "namespaces_of", "page_state_of", "visible_state"]

Entity = dict[str, Any]
PageState = dict[str, Entity]
Patch = dict[str, Any]

_SECRET = secrets.token_bytes(32)
_SIZE = re.compile(r"(\d+ x )?(\d+\.\d GiB|\d+ MiB|a GPU alone|as learnt)")
"""Matches a request in amounts, but not the name of a slice, which users choose."""


@lru_cache(maxsize=16_384)
def _opaque(uid: str) -> str:
    """Return an opaque key of a job that is constant while this process runs."""
    return blake2b(uid.encode(), key=_SECRET, digest_size=9).hexdigest()


def page_state_of(
    state: State,
    stale_since: datetime | None = None,
    operator_problem: str = "",
    *,
    left_out: Sequence[str] = (),
) -> PageState:
    """Return the page state without restrictions.

    Parameters
    ----------
    stale_since
        Time since which watching the cluster fails; None while it works.
    operator_problem
        Why no operator is running; empty if one is running.
    left_out
        Kinds that the console may not list.
    """
    now = datetime.now(UTC)
    stale = stale_since and stale_since.timestamp()
    page: PageState = {
        "feed": {
            "kind": "feed",
            "staleSince": stale,
            "operatorProblem": operator_problem,
            "leftOut": list(left_out),
        }
    }
    for seen in partitions_view(state, now):
        partition = state.partitions.get(seen.name)
        page[f"partition/{seen.name}"] = {
            **_partition(seen, partition),
            # Shares count what all namespaces have.
            "namespaces": [] if left_out else namespaces(state, partition),
            **ended_counts(state, seen.name),
        }
        for gpu in seen.gpus:
            page[f"gpu/{gpu.name}"] = _gpu(
                seen.name, gpu, state.servers.get(gpu.name), partition, now
            )
        for view in (*seen.queue, *active_jobs(seen.name, state), *seen.workloads):
            page[f"job/{_opaque(view.uid)}"] = row_of(view)
    return page


def _partition(seen: PartitionView, partition: GPUPartition | None) -> Entity:
    entity: Entity = {
        "kind": "partition",
        "name": seen.name,
        "exists": seen.exists,
        "mode": seen.mode,
        "wanted": seen.wanted,
        "allocatable": sum(gpu.allocatable for gpu in seen.gpus),
        "allocated": sum(gpu.allocated for gpu in seen.gpus),
        "used": _total([gpu.used for gpu in seen.gpus]),
        "running": seen.running,
        "waiting": seen.waiting,
        "suspended": sum(row.held_back for row in seen.queue),
        "trouble": seen.trouble,
        "troubleReason": "",
        "policy": None,
        "shadow": [],
    }
    if partition is None:
        return entity
    conditions = {c.type: c for c in partition.status.conditions}
    if seen.trouble:
        entity["troubleReason"] = conditions["Degraded"].reason
    healthy = conditions.get("PolicyHealthy")
    entity["policy"] = {
        **(partition.status.policy or PolicyStatus()).dump(),
        "active": seen.policy,
        "wanted": partition.spec.policy.name,
        "objective": seen.objective,
        "healthy": healthy is None or healthy.status != "False",
        "message": healthy.message if healthy is not None else "",
    }
    statuses = {shadow.name: shadow for shadow in partition.status.shadow}
    entity["shadow"] = [
        statuses.get(name, ShadowStatus(name=name)).dump() for name in partition.spec.policy.shadow
    ]
    return entity


def _total(amounts: Sequence[int | None]) -> int | None:
    """Return the sum; None if an amount is not known."""
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if len(known) == len(amounts) else None


def _gpu(
    name: str,
    gpu: GPUView,
    server: GPUServer | None,
    partition: GPUPartition | None,
    now: datetime,
) -> Entity:
    """Return a GPU of the partition of this name; without a GPUServer if it may not be read."""
    mps = server.status.mps if server is not None else None
    slices = [_slice(piece, now) for piece in gpu.slices]
    if gpu.unseen:
        rest = gpu.allocated - sum(piece.memory for piece in gpu.slices)
        slices.append({"id": _opaque(gpu.name), "namespace": None, "memory": max(0, rest)})
    return {
        "kind": "gpu",
        "name": gpu.name,
        "partition": name,
        "node": gpu.node,
        "product": gpu.product,
        "state": _state(gpu, server, partition),
        "mps": mps.state if mps else "",
        "clients": mps.clients if mps else 0,
        "allocatable": gpu.allocatable,
        "allocated": gpu.allocated,
        "used": gpu.used,
        "utilization": gpu.utilization,
        "unknown": gpu.unknown,
        "unknownMemory": gpu.unknown_memory,
        "enforcement": gpu.enforcement,
        "message": gpu.message,
        "slices": slices,
    }


def _state(gpu: GPUView, server: GPUServer | None, partition: GPUPartition | None) -> str:
    """Return the GPU's state.

    The console may not read nodes and Pods. So their state is taken from the partition's status.
    """
    if server is None:
        return gpu.state
    if gpu.state != "Unready" or partition is None or not server.status.holds("Ready"):
        return gpu.state
    states = (s.state for s in partition.status.gpu_summary if s.name == gpu.name)
    state = next(states, "Starting")
    return state if state in {"Ready", "Unready"} else "Ready"


def _slice(piece: SliceView, now: datetime) -> Entity:
    return {
        "id": _opaque(piece.uid),
        "namespace": piece.namespace,
        "name": piece.name,
        "attempt": piece.attempt,
        "memory": piece.memory,
        "limit": piece.memory_limit,
        "used": piece.used,
        "threads": piece.thread_percent,
        "workload": piece.workload,
        "lasting": piece.lasting,
        "idleSince": None if piece.idle is None else round(now.timestamp() - piece.idle),
    }


def namespaces_of(page: PageState) -> set[str]:
    """Return the namespaces that occur in a page state."""
    found = set()
    for entity in page.values():
        if entity["kind"] == "job":
            found.add(entity["namespace"])
        elif entity["kind"] == "gpu":
            found.update(one["namespace"] for one in entity["slices"] if one["namespace"])
        elif entity["kind"] == "partition":
            found.update(one["namespace"] for one in entity["namespaces"])
            found.update(entity["finished"], entity["failed"])
    return found


def visible_state(page: PageState, sees: Callable[[str], bool]) -> PageState:
    """Return the part of a page state that a viewer of some namespaces may see.

    Messages of policies and of the operator are removed, because they may contain the name of any
    job.
    """
    own: PageState = {}
    asked = set()
    for key, entity in page.items():
        match entity["kind"]:
            case "job" if not sees(entity["namespace"]):
                own[key] = _hidden_job(entity)
            case "job":
                own[key] = entity
                asked.add(entity["partition"])
            case "gpu":
                slices = [s if sees(s["namespace"]) else _hidden_slice(s) for s in entity["slices"]]
                own[key] = {**entity, "slices": slices, "message": ""}
            case "partition":
                own[key] = _discreet(entity, sees)
            case _:
                own[key] = entity
    # The name of a missing partition comes from jobs. Hide it unless a visible job contains it.
    made_up = {
        entity["name"]
        for entity in own.values()
        if entity["kind"] == "partition" and not entity["exists"] and entity["name"] not in asked
    }
    if not made_up:
        return own
    return {
        key: entity
        for key, entity in own.items()
        if entity.get("partition", entity.get("name")) not in made_up
    }


def _hidden_slice(piece: Entity) -> Entity:
    return {"id": piece["id"], "namespace": None, "memory": piece["memory"]}


def _hidden_job(job: Entity) -> Entity:
    kept = {key: job[key] for key in ("kind", "list", "partition", "position", "phase", "stuck")}
    size = _SIZE.fullmatch(job["asks"])
    asks, memory = (job["asks"], job["memory"]) if size else ("", None)
    return {**kept, "namespace": None, "asks": asks, "memory": memory}


def _discreet(partition: Entity, sees: Callable[[str], bool]) -> Entity:
    policy = partition["policy"]
    return {
        **partition,
        "namespaces": [one for one in partition["namespaces"] if sees(one["namespace"])],
        "finished": {name: n for name, n in partition["finished"].items() if sees(name)},
        "failed": {name: n for name, n in partition["failed"].items() if sees(name)},
        "trouble": partition["troubleReason"],
        "policy": policy and {**policy, "message": ""},
        "shadow": [{**shadow, "message": ""} for shadow in partition["shadow"]],
    }


def changes(old: PageState, new: PageState) -> Patch:
    """Return the difference of two states: fields to set by key, and keys that were removed.

    A field that was removed is set to null.
    """
    changed = {}
    for key, entity in new.items():
        before = old.get(key, {})
        fields = {
            name: value
            for name, value in entity.items()
            if name not in before or before[name] != value
        }
        fields |= dict.fromkeys(before.keys() - entity.keys())
        if fields:
            changed[key] = fields
    gone = [key for key in old if key not in new]
    return ({"set": changed} if changed else {}) | ({"gone": gone} if gone else {})
