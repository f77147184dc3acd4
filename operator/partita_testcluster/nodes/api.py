"""Raw JSON calls over the connection of the official client, for all writes of the nodes.

Calls are repeated with growing pauses while the API server is unreachable, overloaded or failing.
A rejected call raises `ApiError`.
"""

import asyncio
import itertools
import json
import random
from collections.abc import Iterator
from typing import Any, Final
from urllib.request import getproxies

import aiohttp
import structlog
from kubernetes.aio.client import ApiClient, Configuration

from partita.kube.client import Kube

__all__ = ["APIServer", "ApiError"]

log = structlog.get_logger(__name__)

_CALLING: Final = aiohttp.ClientTimeout(total=30)
CONCURRENCY: Final = 16
"""Concurrent calls: enough to hide latency, few enough to leave capacity for other clients."""

Body = dict[str, Any]


class ApiError(Exception):
    """The API server refused a call: its HTTP status, reason and message."""

    def __init__(self, status: int, body: Body) -> None:
        super().__init__(f"{status} {body.get('reason', '')}: {body.get('message', '')}")
        self.status = status


def _transient(error: Exception) -> bool:
    """Return whether the same call can succeed later."""
    return not isinstance(error, ApiError) or error.status == 429 or error.status >= 500


def _repeatable(method: str, body: Body | None) -> bool:
    """Return whether a call can succeed after a conflict."""
    return method == "PATCH" and not (body or {}).get("metadata", {}).get("resourceVersion")


def _pauses() -> Iterator[float]:
    """Yield pauses between repetitions: doubling, bounded, with jitter."""
    for doubled in itertools.count():
        yield min(2.0, 0.05 * 2**doubled) * random.uniform(0.5, 1.0)  # noqa: S311


class APIServer:
    """One API server.

    Parameters
    ----------
    configuration
        Configuration of the official client: address and credentials.
    """

    def __init__(self, configuration: Configuration) -> None:
        if not getproxies():
            # By default, aiohttp searches for proxies and ~/.netrc in a thread, twice in each call:
            # a third of the cost of a small call (`trust_env` in docs.aiohttp.org).
            configuration.client_session_kwargs = {"trust_env": False}
        self._client = ApiClient(configuration)
        self.kube = Kube(self._client)
        """The client with which informers list and watch."""
        self._slots = asyncio.Semaphore(CONCURRENCY)

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()  # type: ignore[no-untyped-call]

    async def call(self, method: str, path: str, body: Body | None = None) -> Body:
        """Call until there is a response; a PATCH is a JSON merge patch.

        A patch is also repeated after a conflict: either with another write, or because the object
        was replaced (a patch with `metadata.uid` changes no other object), which a watch reports. A
        patch for one `metadata.resourceVersion` only is not: a watch reports the newer version.

        Raises
        ------
        ApiError
            If the API server rejects the call.
        """
        for pause in _pauses():
            try:
                async with self._slots, await self._send(method, path, body) as response:
                    return await _answer(response)
            except (ApiError, aiohttp.ClientError, OSError) as error:
                conflict = isinstance(error, ApiError) and error.status == 409
                if not (_transient(error) or (conflict and _repeatable(method, body))):
                    raise
                log.info("call repeated", method=method, path=path, error=repr(error))
            await asyncio.sleep(pause)
        raise AssertionError("there is always another pause")

    async def _send(
        self, method: str, path: str, body: Body | None = None
    ) -> aiohttp.ClientResponse:
        form = "merge-patch+json" if method == "PATCH" else "json"
        headers = {"Content-Type": f"application/{form}", "Accept": "application/json"}
        await self._client.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
        url = self._client.configuration.host + path
        answer = await self._client.rest_client.request(  # type: ignore[no-untyped-call]
            method, url, headers=headers, body=body, _request_timeout=_CALLING
        )
        response: aiohttp.ClientResponse = answer.response
        return response


async def _answer(response: aiohttp.ClientResponse) -> Body:
    data = await response.read()
    try:
        body: Body = json.loads(data)
    except ValueError:
        body = {"message": data[:200].decode(errors="replace")}
    if response.status >= 400:
        raise ApiError(response.status, body)
    return body
