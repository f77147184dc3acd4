"""All versions of what an operator touches, as the API server's watches tell them.

A test waits on it (no polling, no sleeping), and at its end it is judged: whatever happened on
the way, no version of any GPUServer may have been booked above what its GPU has, no attempt may
have been started twice, and nothing may be left.

The resource versions of one API server are ordered over all kinds, so "before" and "while" can
be told across kinds too.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from partita.models import GPUPartition, GPUServer
from partita.scheduling.ledger import overbooked
from partita.scheduling.request import bookable
from support.api import Api

__all__ = ["GROUP_PATH", "History", "Version"]

Body = dict[str, Any]

GROUP_PATH = "/apis/partita.dev/v1alpha1"
PATHS = {
    "gpupartitions": f"{GROUP_PATH}/gpupartitions",
    "gpuservers": f"{GROUP_PATH}/gpuservers",
    "sharedgpujobs": f"{GROUP_PATH}/sharedgpujobs",
    "pods": "/api/v1/pods",
    "events": "/api/v1/events",
    "nodes": "/api/v1/nodes",
}
WAIT_SECONDS = 20
"""How long a state is waited for; none takes more than a second or two on an idle machine."""
_UID = "partita.dev/job-uid"
_COMPONENT = "partita.dev/component"
_FINISHED = {"Succeeded", "Failed"}


@dataclass(frozen=True)
class Version:
    """One version of one object."""

    number: int
    """Its resource version."""
    kind: str
    """ADDED, MODIFIED or DELETED."""
    body: Body = field(repr=False)


class History:
    """Records all kinds from `recording` on; objects that were there before are not its business."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._versions: dict[str, dict[str, list[Version]]] = {plural: {} for plural in PATHS}
        self._latest: dict[tuple[str, str, str], Body] = {}
        self._before: set[str] = set()
        self._waiting: set[asyncio.Event] = set()

    @contextlib.asynccontextmanager
    async def recording(self) -> AsyncIterator[History]:
        """Record while the block runs."""
        async with contextlib.AsyncExitStack() as stack:
            tasks = []
            for plural, path in PATHS.items():
                listed = (await self._api.get(path)).ok()
                self._before |= {item["metadata"]["uid"] for item in listed.body["items"]}
                watch = await stack.enter_async_context(
                    self._api.watch(path, resourceVersion=listed.version)
                )
                assert watch.status == 200
                tasks.append(asyncio.create_task(self._follow(plural, watch.next)))
            try:
                yield self
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)

    async def _follow(self, plural: str, following: Callable[..., Any]) -> None:
        while True:
            kind, body = await following(None)
            assert kind in {"ADDED", "MODIFIED", "DELETED"}, (kind, body)
            self._take(plural, kind, body)

    def _take(self, plural: str, kind: str, body: Body) -> None:
        meta = body["metadata"]
        if meta["uid"] in self._before:
            return
        version = Version(int(meta["resourceVersion"]), kind, body)
        self._versions[plural].setdefault(meta["uid"], []).append(version)
        key = (plural, meta.get("namespace", ""), meta["name"])
        if kind == "DELETED":
            self._latest.pop(key, None)
        else:
            self._latest[key] = body
        for event in self._waiting:
            event.set()

    # What tests ask.

    def get(self, plural: str, name: str, namespace: str = "") -> Body | None:
        """Return an object as it is now, None if it is not there."""
        return self._latest.get((plural, namespace, name))

    def all(self, plural: str, namespace: str | None = None) -> list[Body]:
        """Return the objects that are there now."""
        return [
            body
            for (kind, where, _), body in self._latest.items()
            if kind == plural and namespace in {None, where}
        ]

    def versions(self, plural: str, name: str, namespace: str = "") -> list[Body]:
        """Return all versions of the objects of this name, in order."""
        return [
            version.body
            for versions in self._versions[plural].values()
            for version in versions
            if version.body["metadata"]["name"] == name
            and version.body["metadata"].get("namespace", "") == namespace
        ]

    def job_pods(self) -> list[Body]:
        """Return the job Pods that ever were, as they were made and in that order."""
        made = sorted((versions[0] for versions in self._job_pods()), key=lambda v: v.number)
        return [version.body for version in made]

    def events(self, name: str) -> list[tuple[str, str]]:
        """Return reason and message of all events about objects of this name."""
        return [
            (body["reason"], body.get("message", ""))
            for body in self.all("events")
            if body["involvedObject"]["name"] == name
        ]

    async def until(
        self, holds: Callable[[], Any], *, seconds: float = WAIT_SECONDS, what: Any = None
    ) -> Any:
        """Wait until something holds of the recorded objects, and return it.

        Raises
        ------
        AssertionError
            It does not in time; the message shows `what()`.
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
            raise AssertionError(f"it stays at {json.dumps(shown, indent=1)[-3000:]}") from None
        finally:
            self._waiting.discard(changed)

    # The verdict.

    def problems(self) -> list[str]:
        """Name everything in the whole record that must never have been."""
        return [
            *self._booked_above_capacity(),
            *self._started_twice(),
            *self._ran_without_booking(),
            *self._attempts_unlike_pods(),
            *self._statuses_that_went_back(),
        ]

    def left_over(self) -> list[str]:
        """Name bookings and living Pods that are there now."""
        booked = [
            f"{body['metadata']['name']} has {sorted(body['status']['allocations'])} booked"
            for body in self.all("gpuservers")
            if body.get("status", {}).get("allocations")
        ]
        living = [
            f"Pod {body['metadata']['name']} is {body['status'].get('phase')}"
            for body in self.all("pods")
            if _is_job(body) and not _has_ended(body)
        ]
        return booked + living

    def attempts(self, job_uid: str) -> list[int]:
        """Return the attempts for which a job's Pods were ever made."""
        metas = [pod["metadata"] for pod in self.job_pods()]
        return sorted(
            int(meta["labels"]["partita.dev/attempt"])
            for meta in metas
            if meta["annotations"][_UID] == job_uid
        )

    def _job_pods(self) -> Iterator[list[Version]]:
        for versions in self._versions["pods"].values():
            if _is_job(versions[0].body):
                yield versions

    def _booked_above_capacity(self) -> Iterator[str]:
        partitions: dict[str, list[GPUPartition]] = {}
        for versions in self._versions["gpupartitions"].values():
            for version in versions:
                found = GPUPartition.parse(version.body)
                partitions.setdefault(found.metadata.name, []).append(found)
        for versions in self._versions["gpuservers"].values():
            for version in versions:
                server = GPUServer.parse(version.body)
                if not server.status.allocations:
                    continue
                wishes = partitions[server.spec.partition]
                for problem in overbooked(
                    server.status.allocations,
                    memory=max(bookable(server.status.memory, wish) for wish in wishes),
                    max_jobs=server.spec.max_jobs,
                    max_clients=48,
                ):
                    yield f"{server.metadata.name} at version {version.number}: {problem}"

    def _started_twice(self) -> Iterator[str]:
        lives: dict[str, list[tuple[int, int, str]]] = {}
        made: dict[tuple[str, str], str] = {}
        for versions in self._job_pods():
            meta = versions[0].body["metadata"]
            uid, attempt = meta["annotations"][_UID], meta["labels"]["partita.dev/attempt"]
            if (uid, attempt) in made:
                yield f"attempt {attempt} of job {uid} was started twice: {meta['name']}"
            made[uid, attempt] = meta["name"]
            begin, end = _life(versions)
            lives.setdefault(uid, []).append((begin, end, meta["name"]))
        for spans in lives.values():
            spans.sort()
            for (_, end, one), (begin, _, other) in itertools.pairwise(spans):
                if begin < end:
                    yield f"{other} was started while {one} lived"

    def _ran_without_booking(self) -> Iterator[str]:
        for versions in self._job_pods():
            meta = versions[0].body["metadata"]
            uid, attempt = meta["annotations"][_UID], int(meta["labels"]["partita.dev/attempt"])
            begin, end = _life(versions)
            spans = [
                span
                for server in self._versions["gpuservers"].values()
                for span in _booked_spans(server, uid, attempt)
            ]
            if not any(first < begin and end <= last for first, last in spans):
                yield f"{meta['name']} lived from {begin} to {end}, but was booked {spans}"

    def _attempts_unlike_pods(self) -> Iterator[str]:
        for uid, versions in self._versions["sharedgpujobs"].items():
            status = versions[-1].body.get("status", {})
            if status.get("phase") not in _FINISHED:
                continue
            said = [attempt["number"] for attempt in status.get("attempts", [])]
            if said != self.attempts(uid):
                name = versions[-1].body["metadata"]["name"]
                yield f"{name} says attempts {said}, but there were Pods {self.attempts(uid)}"

    def _statuses_that_went_back(self) -> Iterator[str]:
        for versions in self._versions["sharedgpujobs"].values():
            name = versions[0].body["metadata"]["name"]
            outcomes: dict[int, str] = {}
            finished = retry = ""
            for version in versions:
                status = version.body.get("status", {})
                phase = status.get("phase", "")
                asked, retry = status.get("retry", "") != retry, status.get("retry", "")
                if finished and phase != finished and not (asked and finished == "Failed"):
                    yield f"{name} was {finished} and became {phase} at {version.number}"
                finished = phase if phase in _FINISHED else ""
                for attempt in status.get("attempts", []):
                    number, outcome = attempt["number"], attempt.get("outcome", "")
                    old = outcomes.get(number, "")
                    if old and outcome != old:
                        yield f"{name} attempt {number} was {old} and became {outcome}"
                    outcomes[number] = outcome


def _is_job(pod: Body) -> bool:
    """Tell the operator's own job Pods: whoever borrows the label owns no job."""
    meta = pod["metadata"]
    owners = [owner["kind"] for owner in meta.get("ownerReferences") or []]
    return (meta.get("labels") or {}).get(_COMPONENT) == "job" and "SharedGPUJob" in owners


def _has_ended(pod: Body) -> bool:
    return pod.get("status", {}).get("phase") in _FINISHED


def _life(versions: list[Version]) -> tuple[int, int]:
    """Return the versions between which a Pod's program could run; the end may be far."""
    ended = (v.number for v in versions if v.kind == "DELETED" or _has_ended(v.body))
    return versions[0].number, next(ended, 1 << 62)


def _booked_spans(versions: list[Version], uid: str, attempt: int) -> Iterator[tuple[int, int]]:
    """Yield from where to where a GPU was booked for an attempt."""
    since = None
    for version in versions:
        entry = version.body.get("status", {}).get("allocations", {}).get(uid)
        booked = version.kind != "DELETED" and entry is not None and entry["attempt"] == attempt
        if booked and since is None:
            since = version.number
        elif not booked and since is not None:
            yield since, version.number
            since = None
    if since is not None:
        yield since, 1 << 62
