"""A fake API client and a fake event recorder, for tests of one component."""

import asyncio
import copy
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from partita.kube.client import CLAIMS, JOBS, PODS, PROFILES, SERVERS, Kind
from partita.kube.errors import (
    AlreadyExistsError,
    ConflictError,
    FencedError,
    KubernetesError,
    NotFoundError,
    UnavailableError,
)
from partita.kube.fence import may_send
from partita.kube.turns import Turns
from partita.models.events import UserEvent
from partita.models.quantities import format_time
from partita.times import Times
from support.builders import START, meta
from support.patches import merged


class FakeKube:
    """Objects by name, with the client's methods.

    Attributes
    ----------
    errors
        Raised by the next writes, one each; None is no error.
    meanwhile
        Called once, before the next write takes effect.
    writes
        All requests to write: verb, name and body.
    created
        Names of the objects that were created.
    """

    times = Times()

    def __init__(self, *bodies: dict[str, Any]) -> None:
        self.objects = {body["metadata"]["name"]: copy.deepcopy(body) for body in bodies}
        self.errors: list[KubernetesError | None] = []
        self.meanwhile: Callable[[], None] | None = None
        self.turns = Turns()
        self.answers = asyncio.Event()
        self.answers.set()
        self.writes: list[tuple[str, str, Any]] = []
        self.created: list[str] = []

    def _meet(self) -> None:
        if self.meanwhile is not None:
            happen, self.meanwhile = self.meanwhile, None
            happen()
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error

    def bump(self, name: str, patch: dict[str, Any]) -> dict[str, Any]:
        body = merged(self.objects[name], patch)
        body["metadata"]["resourceVersion"] = str(int(body["metadata"]["resourceVersion"]) + 10**6)
        self.objects[name] = body
        return copy.deepcopy(body)

    async def get(self, _kind: Kind, name: str, _namespace: str = "") -> dict[str, Any]:
        if name not in self.objects:
            raise NotFoundError("get", 404, "no")
        return copy.deepcopy(self.objects[name])

    async def patch(
        self, kind: Kind, name: str, patch: dict[str, Any], *, resource_version: str = "", **_: Any
    ) -> dict[str, Any]:
        self.writes.append(("patch", name, patch))
        assert kind in {JOBS, PODS, SERVERS, CLAIMS, PROFILES}
        await self.answers.wait()
        self._meet()
        if name not in self.objects:
            raise NotFoundError("patch", 404, "no")
        there = self.objects[name]["metadata"]["resourceVersion"]
        if resource_version and resource_version != there:
            raise ConflictError("patch", 409, "changed")
        return self.bump(name, patch)

    async def create(self, kind: Kind, body: dict[str, Any]) -> dict[str, Any]:
        name = body["metadata"]["name"]
        self.writes.append(("create", name, body))
        await self.answers.wait()
        self._meet()
        if not may_send():
            raise FencedError("create", 0, "no")
        if name in self.objects:
            raise AlreadyExistsError("create", 409, "there")
        if kind is not CLAIMS:
            self.created.append(name)
        uid = f"pod-{name}" if kind is PODS else str(uuid4())
        own = {"creationTimestamp": format_time(START), **body["metadata"]}
        made = {**body, "metadata": meta(name, uid, **own)}
        return copy.deepcopy(self.objects.setdefault(name, made))

    async def delete(
        self, _kind: Kind, name: str, _namespace: str, *, uid: str, grace: int | None = None
    ) -> None:
        self.writes.append(("delete", name, (uid, grace)))
        await self.answers.wait()
        self._meet()

    async def evict(self, name: str, _namespace: str, *, uid: str, grace: int | None) -> None:
        self.writes.append(("evict", name, (uid, grace)))
        self._meet()


class Notes:
    """Events that a test may ask for."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def warn(self, _about: Any, reason: str, message: str) -> None:
        self.said.append(f"{reason}: {message}")

    inform = warn

    def emit(self, event: UserEvent) -> None:
        self.warn(event.about, event.reason, event.message)


DOWN = UnavailableError("patch", 503, "down")
