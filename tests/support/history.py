"""All versions of what an operator touches, as the API server's watches tell them.

A test waits on it (no polling, no sleeping), and at its end it is judged (`support.record`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import aiohttp
from typing_extensions import override

from support.api import Answer, Api
from support.polling import TIMEOUT
from support.record import Body, Record, Version

__all__ = ["GROUP_PATH", "PATHS", "History", "Version"]

GROUP_PATH = "/apis/partita.dev/v1alpha1"
PATHS = {
    "gpupartitions": f"{GROUP_PATH}/gpupartitions",
    "gpuservers": f"{GROUP_PATH}/gpuservers",
    "sharedgpujobs": f"{GROUP_PATH}/sharedgpujobs",
    "resourceclaims": "/apis/resource.k8s.io/v1/resourceclaims",
    "pods": "/api/v1/pods",
    "events": "/api/v1/events",
    "nodes": "/api/v1/nodes",
}
RESUME_AFTER = 0.1
"""Seconds before a watch that has ended is taken up again, where it ended."""


class _MissedError(Exception):
    """A watch cannot be taken up where it ended."""


class History(Record):
    """Records from `recording` on; objects that were there before are not its business.

    A watch that ends is taken up at the version at which it ended. Where that cannot be, there is
    a gap, which counts as a problem: nothing that was judged on it would mean anything.

    Parameters
    ----------
    paths
        What is recorded, by plural.
    """

    def __init__(self, api: Api, paths: Mapping[str, str] = PATHS) -> None:
        super().__init__()
        self._api = api
        self._paths = paths
        self._before: set[str] = set()
        self._waiting: set[asyncio.Event] = set()
        self._gaps: list[str] = []
        self.redefined: set[str] = set()
        """Kinds whose definition the test replaces: the API server forgets their older versions."""
        self._reached: Counter[str] = Counter()

    @contextlib.asynccontextmanager
    async def recording(self) -> AsyncIterator[History]:
        """Record while the block runs."""
        tasks = []
        for plural, path in self._paths.items():
            listed = (await self._api.get(path)).ok()
            self._before |= {item["metadata"]["uid"] for item in listed.body["items"]}
            tasks.append(asyncio.create_task(self._follow(plural, path, listed.version)))
        try:
            yield self
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _follow(self, plural: str, path: str, version: str) -> None:
        while True:
            try:
                async for kind, body in self._events(path, version):
                    version = body["metadata"]["resourceVersion"]
                    self._see(plural, kind, body)
            except _MissedError as missed:
                if plural in self.redefined:
                    version = await self._list_again(plural, path)
                    continue
                self._gaps.append(f"{plural} from version {version} on were not seen: {missed}")
                return
            except (EOFError, aiohttp.ClientError, OSError, json.JSONDecodeError):
                pass  # the server is away, or has cut it off
            await asyncio.sleep(RESUME_AFTER)

    async def _list_again(self, plural: str, path: str) -> str:
        """Record the objects that have changed since the last one seen; return the version."""
        listed, known = (await self._api.get(path)).ok(), self.latest(plural)
        for item in listed.body["items"]:
            meta = item["metadata"]
            last = known.get(meta["uid"])
            if last is None or last.number < int(meta["resourceVersion"]):
                self._see(plural, "MODIFIED", item)
        return listed.version

    async def _events(self, path: str, version: str) -> AsyncIterator[tuple[str, Body]]:
        """Yield the events of one watch, to its end."""
        async with self._api.watch(path, resourceVersion=version) as watch:
            if watch.status in {400, 404, 410}:
                raise _MissedError(f"it answers {watch.status}")
            while watch.status == 200:
                kind, body = await watch.next(None)
                if kind == "ERROR" and body.get("code") == 410:
                    raise _MissedError(body.get("message", ""))
                if kind == "ERROR":
                    return
                yield kind, body

    def _see(self, plural: str, kind: str, body: Body) -> None:
        assert kind in {"ADDED", "MODIFIED", "DELETED"}, (kind, body)
        meta = body["metadata"]
        number = int(meta["resourceVersion"])
        self._reached[plural] = max(self._reached[plural], number)
        if meta["uid"] in self._before:
            return
        now = asyncio.get_running_loop().time()
        self.take(plural, Version(number, kind, body, now))
        for event in self._waiting:
            event.set()

    @override
    def problems(self) -> list[str]:
        """Name everything that must never have been, and what was not seen."""
        return [*self._gaps, *super().problems()]

    async def reach(self, body: Body, *plurals: str) -> None:
        """Wait until all that was written of these kinds before a version of an object is recorded.

        Each kind has a watch of its own, which may be late, and which says nothing while nothing
        changes. So the kinds that are not known to be complete are listed, and waited for.
        """
        number = int(body["metadata"]["resourceVersion"])
        await self._complete([plural for plural in plurals if self._reached[plural] < number])

    async def judged(self) -> list[str]:
        """Name all that must never have been, once everything that was written is recorded."""
        if not self._gaps:
            await self._complete([plural for plural in self._paths if plural != "events"])
        return self.problems()

    async def _complete(self, plurals: Sequence[str]) -> None:
        """Wait until these kinds are recorded up to now."""
        lists = await asyncio.gather(*(self._api.get(self._paths[plural]) for plural in plurals))
        for plural, listed in zip(plurals, lists, strict=True):
            await self._recorded(plural, listed.ok())

    async def _recorded(self, plural: str, listed: Answer) -> None:
        """Wait until the objects of a kind are recorded as a list has them, or later."""

        def missing() -> list[str]:
            return self._missing(plural, listed)

        await self.until(lambda: not missing(), what=missing)
        self._reached[plural] = max(self._reached[plural], int(listed.version))

    def _missing(self, plural: str, listed: Answer) -> list[str]:
        """Return the UIDs of objects that are not recorded as a list has them."""
        known, metas = self.latest(plural), [item["metadata"] for item in listed.body["items"]]
        there = {m["uid"]: int(m["resourceVersion"]) for m in metas if m["uid"] not in self._before}
        older = [u for u, n in there.items() if u not in known or known[u].number < n]
        return older + [
            uid
            for uid, last in known.items()
            if uid not in there and last.kind != "DELETED" and last.number <= int(listed.version)
        ]

    async def until(
        self, holds: Callable[[], Any], *, seconds: float = TIMEOUT, what: Any = None
    ) -> Any:
        """Wait until something holds of the recorded objects, and return it.

        Raises
        ------
        AssertionError
            It does not in time; the message shows `what()`, and a note all that is recorded.
        """
        changed = asyncio.Event()
        self._waiting.add(changed)
        try:
            async with asyncio.timeout(seconds):
                while not (found := holds()):
                    changed.clear()
                    await changed.wait()
                return found
        except TimeoutError:
            shown = what() if callable(what) else what
            error = AssertionError(f"it stays at {json.dumps(shown, indent=1)[-3000:]}")
            for plural in self._paths:
                for body in self.all(plural):
                    status = json.dumps(body.get("status", body))
                    error.add_note(f"{plural} {body['metadata']['name']} {status}")
            raise error from None
        finally:
            self._waiting.discard(changed)
