"""Authenticates viewers and determines what each viewer may see.

In a cluster a viewer signs in with a token of the API server. A TokenReview identifies the viewer,
and SubjectAccessReviews return which objects the viewer may list. The token is stored only in the
browser's memory and sent with each request in the header Authorization. Cookies are not used, so
another site cannot make a browser send the token. Nothing is written to disk or logged.

What a viewer does, and the logs that it reads, are requests with its own token (`connect_as`), so
the API server decides about them.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Generic, TypeVar

import orjson
from typing_extensions import override

from partita.kube.client import JOBS, PARTITIONS, Kind, Kube
from partita.kube.errors import KubernetesError
from partita.times import Times

__all__ = [
    "ByToken",
    "NotAllowedError",
    "Sees",
    "SignInError",
    "ViewerAccess",
    "token_of",
]

Sees = Callable[[str], bool]
"""Takes a namespace; returns whether its names may be shown."""

TOKEN_REVIEWS = Kind("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)
ACCESS_REVIEWS = Kind(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)

_MAX_TOKEN = 16_384
"""Most characters of a token; tokens of Kubernetes have about 1,000."""
_AT_ONCE = 16
"""Number of concurrent reviews."""

T = TypeVar("T")


class SignInError(Exception):
    """The token is missing or not valid: the viewer must sign in."""


class NotAllowedError(Exception):
    """The viewer is known, but may not see any partition."""


def token_of(authorization: str) -> str:
    """Return the token in a header `Authorization`.

    Raises
    ------
    SignInError
        There is none.
    """
    scheme, _, token = authorization.partition(" ")
    token = token.strip()
    readable = token.isascii() and 0 < len(token) <= _MAX_TOKEN
    if scheme.lower() != "bearer" or not readable:
        raise SignInError
    return token


class ViewerAccess:
    """Determines what each viewer may see: here, what the user of the kubeconfig may list."""

    asks = False
    """Whether viewers must sign in."""

    async def sees(self, authorization: str, namespaces: Collection[str]) -> Sees | None:  # noqa: ARG002
        """Return which of these namespaces the viewer may see; None means all.

        Parameters
        ----------
        authorization
            The request's header `Authorization`.

        Raises
        ------
        SignInError, NotAllowedError, KubernetesError
            The viewer may see nothing, or the API server does not answer.
        """
        return None

    async def may(self, authorization: str, verb: str, kind: Kind, namespace: str) -> bool:  # noqa: ARG002
        """Return whether the viewer has a right in a namespace.

        Raises
        ------
        SignInError, KubernetesError
            The viewer is unknown, or the API server does not answer.
        """
        return True


@dataclass
class _Remembered(Generic[T]):
    """Cached answers with the time at which they were received; the oldest are removed first."""

    seconds: float
    most: int
    answers: OrderedDict[Any, tuple[float, T]] = field(default_factory=OrderedDict)

    def get(self, key: Any) -> T | None:
        at, answer = self.answers.get(key, (0.0, None))
        return answer if time.monotonic() - at < self.seconds else None

    def put(self, key: Any, answer: T) -> T:
        self.answers[key] = (time.monotonic(), answer)
        self.answers.move_to_end(key)
        while len(self.answers) > self.most:
            self.answers.popitem(last=False)
        return answer


class ByToken(ViewerAccess):
    """Authenticates and authorizes each viewer by reviews of the API server.

    Parameters
    ----------
    kube
        A client that may create TokenReviews and SubjectAccessReviews.
    times
        How long an answer of the API server is cached.
    most_cached
        Maximum number of cached answers.
    """

    asks = True

    def __init__(self, kube: Kube, times: Times = Times(), *, most_cached: int = 10_000) -> None:
        self._kube = kube
        self._users: _Remembered[dict[str, Any]] = _Remembered(times.viewer_rights, most_cached)
        self._rights: _Remembered[bool] = _Remembered(times.viewer_rights, most_cached)
        self._at_once = asyncio.Semaphore(_AT_ONCE)

    @override
    async def sees(self, authorization: str, namespaces: Collection[str]) -> Sees | None:
        user = await self._user(authorization)
        if not await self._may(user, "list", PARTITIONS, ""):
            raise NotAllowedError(str(user.get("username", "")))
        if await self._may(user, "list", JOBS, ""):
            return None
        wanted = sorted(namespaces)
        may = await asyncio.gather(*(self._seen(user, name) for name in wanted))
        return {name for name, allowed in zip(wanted, may, strict=True) if allowed}.__contains__

    @override
    async def may(self, authorization: str, verb: str, kind: Kind, namespace: str) -> bool:
        return await self._may(await self._user(authorization), verb, kind, namespace)

    async def _user(self, authorization: str) -> dict[str, Any]:
        token = token_of(authorization)
        key = sha256(token.encode()).digest()
        user = self._users.get(key)
        if user is not None:
            return user
        async with self._at_once:
            # Without an audience, the API server accepts only tokens for itself.
            review = await self._kube.create(TOKEN_REVIEWS, {"spec": {"token": token}})
        status = review.get("status") or {}
        if status.get("authenticated") is not True or status.get("error"):
            raise SignInError
        return self._users.put(key, status.get("user") or {})

    async def _seen(self, user: dict[str, Any], namespace: str) -> bool:
        """Return whether a namespace may be shown; False if the API server does not answer."""
        try:
            return await self._may(user, "list", JOBS, namespace)
        except KubernetesError:
            return False

    async def _may(self, user: dict[str, Any], verb: str, kind: Kind, namespace: str) -> bool:
        """Return whether a user has a right in a namespace, or in all namespaces (`""`)."""
        spec = {
            "user": user.get("username", ""),
            "uid": user.get("uid", ""),
            "groups": user.get("groups") or [],
            "extra": user.get("extra") or {},
            "resourceAttributes": {
                "verb": verb,
                "group": kind.group,
                "resource": kind.plural,
                "namespace": namespace,
            },
        }
        key = orjson.dumps(spec, option=orjson.OPT_SORT_KEYS)
        known = self._rights.get(key)
        if known is not None:
            return known
        async with self._at_once:
            review = await self._kube.create(ACCESS_REVIEWS, {"spec": spec})
        return self._rights.put(key, (review.get("status") or {}).get("allowed") is True)
