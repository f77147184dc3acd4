"""Versions of objects, and what can be told of a series of them. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["FINISHED", "Body", "Version", "allocated_spans", "entries_of", "has_ended", "life_of"]

Body = dict[str, Any]

FINISHED = {"Succeeded", "Failed"}


@dataclass(frozen=True)
class Version:
    """One version of one object."""

    number: int
    """Its resource version."""
    kind: str
    """ADDED, MODIFIED or DELETED."""
    body: Body = field(repr=False)
    at: float = 0.0
    """When it was seen, by the event loop's clock."""


def has_ended(pod: Body) -> bool:
    """Tell whether a Pod's programs have ended."""
    return pod.get("status", {}).get("phase") in FINISHED


def life_of(versions: Sequence[Version]) -> tuple[int, int]:
    """Return the versions between which a Pod's program could run; the end may be far."""
    ended = (v.number for v in versions if v.kind == "DELETED" or has_ended(v.body))
    return versions[0].number, next(ended, 1 << 62)


def entries_of(server: Body) -> Body:
    """Return the ledger of a GPUServer."""
    entries: Body = (server.get("status") or {}).get("allocations") or {}
    return entries


def allocated_spans(
    versions: Sequence[Version], allocated: Callable[[Body], bool]
) -> Iterator[tuple[int, int]]:
    """Yield from where to where this holds of the ledger of a GPU."""
    since = None
    for version in versions:
        holds = version.kind != "DELETED" and allocated(entries_of(version.body))
        if holds and since is None:
            since = version.number
        elif not holds and since is not None:
            yield since, version.number
            since = None
    if since is not None:
        yield since, 1 << 62
