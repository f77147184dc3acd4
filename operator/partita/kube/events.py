"""Writing of Events, which `kubectl describe` shows, without repetitions.

Events are written in the background, so callers do not wait, and during half of the time.
Namespaces take turns, and a flood of one drops its own Events alone. An Event that cannot be
written is logged.
"""

import asyncio
import time
from collections import Counter, OrderedDict
from datetime import UTC, datetime
from typing import Any

import structlog

from partita.fair_queue import FairQueue
from partita.kube.client import EVENTS, Kube
from partita.kube.errors import KubernetesError
from partita.models import Resource
from partita.models.events import EventSubject, UserEvent

__all__ = ["EventSubject", "Events"]

_SAME_WITHIN = 300.0
"""Seconds in which the same event about the same object is not repeated."""
_REMEMBERED = 5_000
_QUEUED = 500
"""Maximum number of queued Events of one namespace. Further Events are dropped."""
_QUEUED_IN_ALL = 5_000
_LOG_DROPS_EVERY = 60.0
"""Minimum seconds between two log lines about dropped Events while others wait to be written."""
_MAX_MESSAGE = 1024
"""Maximum length of an Event's message in the API server (characters)."""
_LONGEST_NAME = 230
"""Characters of an object's name that stand in that of its Event. An Event's name has at most 253,
and a Pod's may have as many."""
_OF_THE_CLUSTER = "default"
"""Namespace of Events about cluster-scoped objects; the API server accepts no other namespace
(ValidateEvent in pkg/apis/core/validation/events.go)."""


class Events:
    """Writes Events about objects of Partita and about Pods."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._queue = FairQueue[str]()
        self._queued: dict[str, dict[str, Any]] = {}
        """The queued Events, by name."""
        self._of_namespace: Counter[str] = Counter()
        self._added = asyncio.Event()
        self._said: OrderedDict[tuple[str, str, str], float] = OrderedDict()
        self._dropped = 0
        """Events dropped since the last log line about it."""
        self._last_dropped = ""
        self._log_drops_at = 0.0
        self._log = structlog.get_logger().bind(part="events")

    def emit(self, event: UserEvent) -> None:
        """Write an Event."""
        write = self.warn if event.warning else self.inform
        write(event.about, event.reason, event.message)

    def warn(self, about: Resource | EventSubject, reason: str, message: str) -> None:
        """Write a Warning, which may require a user to correct something."""
        self._say(about, "Warning", reason, message)

    def inform(self, about: Resource | EventSubject, reason: str, message: str) -> None:
        """Write a Normal Event."""
        self._say(about, "Normal", reason, message)

    async def run(self) -> None:
        """Write queued Events until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            while not self._queue:
                self._added.clear()
                await self._added.wait()
            event = self._queued.pop(self._queue.pop())
            self._of_namespace[event["metadata"]["namespace"]] -= 1
            began = loop.time()
            try:
                await self._kube.create(EVENTS, event)
            except KubernetesError as error:
                self._log.info("event not written", error=str(error), reason=event["reason"])
            if self._dropped and not self._queue:
                self._log_drops(time.monotonic())
            await asyncio.sleep(loop.time() - began)  # others need the API server, too

    def _say(self, about: Resource | EventSubject, kind: str, reason: str, message: str) -> None:
        subject = about if isinstance(about, EventSubject) else EventSubject.of(about)
        message = message[:_MAX_MESSAGE]
        key = (subject.uid, reason, message)
        now = time.monotonic()
        if now - self._said.get(key, -_SAME_WITHIN) < _SAME_WITHIN:
            return
        self._said[key] = now
        self._said.move_to_end(key)
        while len(self._said) > _REMEMBERED:
            self._said.popitem(last=False)
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        event: dict[str, Any] = {
            "metadata": {
                "name": f"{subject.name[:_LONGEST_NAME].rstrip('-.')}.{time.time_ns():x}",
                "namespace": subject.namespace or _OF_THE_CLUSTER,
            },
            "involvedObject": {
                "apiVersion": subject.api_version,
                "kind": subject.kind,
                "name": subject.name,
                "namespace": subject.namespace,
                "uid": subject.uid,
                "resourceVersion": subject.resource_version,
            },
            "reason": reason,
            "message": message,
            "type": kind,
            "source": {"component": "partita"},
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
        }
        name, namespace = event["metadata"]["name"], event["metadata"]["namespace"]
        if self._of_namespace[namespace] >= _QUEUED or len(self._queue) >= _QUEUED_IN_ALL:
            self._drop(event, now)
            return
        self._queued[name] = event
        self._of_namespace[namespace] += 1
        self._queue.add(name, namespace)
        self._added.set()

    def _drop(self, event: dict[str, Any], now: float) -> None:
        """Count a dropped Event, and log the number if this was not done recently."""
        self._dropped += 1
        self._last_dropped = f"{event['reason']}: {event['message']}"
        if now >= self._log_drops_at:
            self._log_drops(now)

    def _log_drops(self, now: float) -> None:
        self._log.warning(
            "events dropped: the API server is too slow",
            number=self._dropped,
            last=self._last_dropped,
        )
        self._dropped, self._log_drops_at = 0, now + _LOG_DROPS_EVERY
