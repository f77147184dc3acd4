"""What kopf would keep of each object to find changes, and which we have no use for.

Before it looks for handlers of changes, of which there are none, kopf copies each object of each
event several times: that was a fifth of the operator's processor time. All that we have it do is
to pass events on (`handlers`).
"""

from typing import Any

import kopf
from kopf._core.reactor.inventory import ResourceMemories, ResourceMemory
from typing_extensions import override

__all__ = ["NoDiffs", "NoMemories", "NoProgress"]


class NoDiffs(kopf.DiffBaseStorage):
    """Finds nothing worth a comparison in any object, and keeps nothing."""

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
    """Keeps no handler's progress: ours are done at once, and never repeated."""

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
    """Keeps nothing of an object between two events: we have neither daemons nor indices.

    It took almost 1 KB of each job, and as much of its Pod.
    """

    @override
    async def recall(self, raw_body: Any, **options: Any) -> ResourceMemory:
        return await super().recall(raw_body, **{**options, "ephemeral": True})
