"""Replacements for kopf's storage of objects, which Partita does not need.

Before kopf looks for handlers of changes, of which there are none, it copies each object of each
event several times. That took a fifth of the operator's CPU time. Partita only uses kopf to pass
events on (`handlers`).
"""

from typing import Any

import kopf
from kopf._core.reactor.inventory import ResourceMemories, ResourceMemory
from typing_extensions import override

__all__ = ["NoDiffs", "NoMemories", "NoProgress"]


class NoDiffs(kopf.DiffBaseStorage):
    """Compares and stores nothing of any object."""

    @override
    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    @override
    def fetch(self, **_: Any) -> None:
        return None

    @override
    def store(self, **_: Any) -> None:
        pass


class NoProgress(kopf.ProgressStorage):
    """Stores no handler progress: Partita's handlers finish at once and are never repeated."""

    @override
    def fetch(self, **_: Any) -> None:
        return None

    @override
    def store(self, **_: Any) -> None:
        pass

    @override
    def purge(self, **_: Any) -> None:
        pass

    @override
    def touch(self, **_: Any) -> None:
        pass

    @override
    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        return essence


class NoMemories(ResourceMemories):
    """Stores nothing about an object between two events: Partita uses no kopf daemons or indices.

    kopf's own storage took almost 1 KB for each job, and as much for its Pod.
    """

    @override
    async def recall(self, raw_body: Any, **options: Any) -> ResourceMemory:
        return await super().recall(raw_body, **{**options, "ephemeral": True})
