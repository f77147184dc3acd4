"""Raw JSON calls over the official client's connection: everything that the nodes write.

Calls are repeated, ever more slowly, while the API server is away, overloaded or failing; what it
rejects is an `ApiError`.
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
"""Calls under way at once: enough to hide latency, few enough to be fair to others."""

Body = dict[str, Any]


class ApiError(Exception):
    """The API server refused a call: its HTTP status, reason and message."""

    def __init__(self, status: int, body: Body) -> None:
        super().__init__(f"{status} {body.get('reason', '')}: {body.get('message', '')}")
        self.status = status


def _transient(error: Exception) -> bool:
    """Tell whether the same call may succeed later."""
    return not isinstance(error, ApiError) or error.status == 429 or error.status >= 500


def _pauses() -> Iterator[float]:
    """Pauses between repetitions: doubling, bounded, never in step with other clients."""
    for doubled in itertools.count():
        yield min(2.0, 0.05 * 2**doubled) * random.uniform(0.5, 1.0)  # noqa: S311


class APIServer:
    """One API server.

    Parameters
    ----------
    configuration
        Where it is and who we are, as the official client has it.
    """

    def __init__(self, configuration: Configuration) -> None:
        if not getproxies():
            # Else aiohttp looks for proxies and ~/.netrc in a thread, twice a call: a third of
            # the cost of a small one (`trust_env` in docs.aiohttp.org).
            configuration.client_session_kwargs = {"trust_env": False}
        self._client = ApiClient(configuration)
        self.kube = Kube(self._client)
        """The client with which informers list and watch."""
        self._slots = asyncio.Semaphore(CONCURRENCY)

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()  # type: ignore[no-untyped-call]

    async def call(self, method: str, path: str, body: Body | None = None) -> Body:
        """Call until there is an answer; a PATCH is a JSON merge patch.

        A patch's conflict is repeated, too: either it was with another's write, or the object is
        another by now (name its `metadata.uid` to touch no other), which a watch reports.

        Raises
        ------
        ApiError
            If the API server refuses.
        """
        for pause in _pauses():
            try:
                async with self._slots, await self._send(method, path, body) as response:
                    return await _answer(response)
            except (ApiError, aiohttp.ClientError, OSError) as error:
                conflict = isinstance(error, ApiError) and error.status == 409
                if not (_transient(error) or (conflict and method == "PATCH")):
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
