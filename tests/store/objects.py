"""Versions of objects, and the keys that they add to the work queues."""

from typing import Any

from partita.store.state import State


def versioned(body: dict[str, Any], version: int, uid: str | None = None) -> dict[str, Any]:
    body["metadata"] |= {"resourceVersion": str(version)}
    if uid:
        body["metadata"]["uid"] = uid
    return body


def added(state: State) -> tuple[set[str], set[str]]:
    jobs = state.queues.jobs.take()
    return jobs, state.queues.partitions.take()
