"""What a test lets happen to requests on their way through a `support.proxy`.

Each fault names the requests it is about, and when it strikes: before the API server sees the
request, or after it took effect.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from aiohttp import web

from support.requests import Request

__all__ = [
    "CannedAnswer",
    "Fault",
    "Hook",
    "Match",
    "When",
    "conflict",
    "everything",
    "internal_error",
    "too_many_requests",
    "unavailable",
    "watches",
    "writes",
]

Match = Callable[[Request], bool]
Hook = Callable[[Request], Awaitable[None] | None]


class When(Enum):
    """The moment of a fault."""

    BEFORE = "before the API server sees the request"
    AFTER = "after the request took effect, before the client hears of it"


@dataclass(frozen=True)
class CannedAnswer:
    """An answer that the proxy gives in the API server's place."""

    status: int
    reason: str
    message: str
    retry_after: int | None = None

    def response(self) -> web.Response:
        """Return it as a Kubernetes ``Status``."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "reason": self.reason,
            "message": self.message,
            "code": self.status,
        }
        headers = {}
        if self.retry_after is not None:
            headers["Retry-After"] = str(self.retry_after)
            body["details"] = {"retryAfterSeconds": self.retry_after}
        return web.json_response(body, status=self.status, headers=headers)


def conflict() -> CannedAnswer:
    """Return a 409, as after somebody else's write."""
    return CannedAnswer(409, "Conflict", "the object has been modified; please apply your changes")


def too_many_requests() -> CannedAnswer:
    """Return a 429 that asks for a pause of a second."""
    message = "too many requests, please try again later"
    return CannedAnswer(429, "TooManyRequests", message, retry_after=1)


def internal_error() -> CannedAnswer:
    """Return a 500."""
    return CannedAnswer(500, "InternalError", "Internal error occurred: injected")


def unavailable() -> CannedAnswer:
    """Return a 503."""
    return CannedAnswer(503, "ServiceUnavailable", "the server is currently unable to handle it")


def everything(_: Request) -> bool:
    """Match every request."""
    return True


def writes(resource: str | None = None, subresource: str | None = None) -> Match:
    """Match the writes, of one resource and subresource (``""``: none) when they are given."""

    def match(request: Request) -> bool:
        return (
            request.is_write
            and resource in {None, request.resource}
            and subresource in {None, request.subresource}
        )

    return match


def watches(resource: str | None = None) -> Match:
    """Match the watches, of one resource when it is given."""
    return lambda request: request.is_watch and resource in {None, request.resource}


@dataclass(eq=False)
class Fault:
    """What happens to some requests; made by `FaultProxy.inject`.

    Attributes
    ----------
    matched
        How many requests it was about so far.
    happened
        How often it struck.
    """

    match: Match
    nth: int
    times: int | None
    when: When
    answer: CannedAnswer | None
    cut: bool
    delay: float
    hook: Hook | None
    matched: int = 0
    happened: int = 0

    def strikes(self, request: Request, when: When) -> bool:
        """Count the request if it is about it, and say whether it is its turn."""
        if when is not self.when or not self.match(request):
            return False
        self.matched += 1
        after = self.matched - self.nth
        if after < 0 or (self.times is not None and after >= self.times):
            return False
        self.happened += 1
        return True
