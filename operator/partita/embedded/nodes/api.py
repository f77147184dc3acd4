"""Raw JSON calls and watches over the official client's connection: all I/O of the nodes.

Calls are repeated, ever more slowly, while the API server is away, overloaded or failing; what it
refuses for good is an `ApiError`.
"""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable
from typing import Any, Final
from urllib.parse import urlencode
from urllib.request import getproxies

import aiohttp
import structlog
from kubernetes.aio.client import ApiClient, Configuration

__all__ = ["API", "ApiError"]

log = structlog.get_logger(__name__)

MERGE_PATCH: Final = "application/merge-patch+json"
CALL_TIMEOUT: Final = aiohttp.ClientTimeout(total=30)
WATCH_SECONDS: Final = 240
"""A watch is asked to end after this; one that is silent for longer than that is taken as dead."""
WATCH_TIMEOUT: Final = aiohttp.ClientTimeout(
    total=None, sock_connect=10, sock_read=WATCH_SECONDS + 30
)
CONCURRENCY: Final = 16
"""Calls under way at once: enough to hide latency, few enough to be fair to others."""
FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 5.0

Body = dict[str, Any]


class ApiError(Exception):
    """The API server refused a call: its HTTP status, reason and message."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason

    @property
    def transient(self) -> bool:
        """Whether the same call may succeed later."""
        return self.status == 429 or self.status >= 500


class _Backoff:
    """Pauses between repetitions: doubling, bounded, never in step with other clients."""

    def __init__(self) -> None:
        self._pause = FIRST_PAUSE

    async def wait(self) -> None:
        await asyncio.sleep(self._pause * random.uniform(0.5, 1.0))  # noqa: S311
        self._pause = min(LONGEST_PAUSE, self._pause * 2)


class API:
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
        self._slots = asyncio.Semaphore(CONCURRENCY)

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()  # type: ignore[no-untyped-call]

    async def get(self, path: str) -> Body:
        """Read an object or a list."""
        return await self._call("GET", path)

    async def create(self, path: str, body: Body) -> Body:
        """Create an object in a collection."""
        return await self._call("POST", path, body)

    async def patch(self, path: str, body: Body) -> None:
        """Merge-patch an object; name its `metadata.uid` to touch no later one of its name."""
        await self._call("PATCH", path, body, MERGE_PATCH)

    async def delete(self, path: str, body: Body | None = None) -> None:
        """Delete an object; one that is gone already is no error."""
        try:
            await self._call("DELETE", path, body)
        except ApiError as error:
            if error.status != 404:
                raise

    async def _call(
        self, method: str, path: str, body: Body | None = None, form: str = "application/json"
    ) -> Body:
        backoff = _Backoff()
        while True:
            try:
                async with self._slots:
                    response = await self._send(method, path, body, form)
                    async with response:
                        if method == "PATCH" and response.status < 400:
                            # Nobody wants to know; but unread, it would cost the connection.
                            await response.read()
                            return {}
                        return await _answer(response)
            except ApiError as error:
                if not error.transient:
                    raise
                log.info("call repeated", method=method, path=path, error=str(error))
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                log.info("call repeated", method=method, path=path, error=repr(error))
            await backoff.wait()

    async def _send(
        self,
        method: str,
        path: str,
        body: Body | None = None,
        form: str = "application/json",
        timeout: aiohttp.ClientTimeout = CALL_TIMEOUT,  # noqa: ASYNC109 - aiohttp's own
    ) -> aiohttp.ClientResponse:
        headers = {
            "Content-Type": form,
            "Accept": "application/json",
            "User-Agent": "partita-nodes",
        }
        await self._client.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
        answer = await self._client.rest_client.request(  # type: ignore[no-untyped-call]
            method,
            self._client.configuration.host + path,
            headers=headers,
            body=body,
            _request_timeout=timeout,
        )
        response: aiohttp.ClientResponse = answer.response
        return response

    async def follow(
        self,
        path: str,
        on_list: Callable[[list[Body]], None],
        on_event: Callable[[str, Body], None],
    ) -> None:
        """List a collection, then watch it, for ever.

        A kind that is not served yet is an empty list, asked for again until it is.

        Parameters
        ----------
        path
            The collection.
        on_list
            Gets all objects, first and whenever the watch had to begin anew.
        on_event
            Gets `ADDED`, `MODIFIED` or `DELETED`, and the object.

        Raises
        ------
        ApiError
            If the API server refuses to list it.
        """
        while True:
            try:
                listed = await self.get(path)
            except ApiError as error:
                if error.status != 404:
                    raise
                on_list([])
                await asyncio.sleep(1)
            else:
                on_list(listed["items"])
                await self._follow_from(path, listed["metadata"]["resourceVersion"], on_event)

    async def _follow_from(
        self, path: str, version: str, on_event: Callable[[str, Body], None]
    ) -> None:
        """Watch until it must begin anew with a list."""
        backoff, known = _Backoff(), True
        while known:
            try:
                async for event in self._watch(path, version):
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        on_event(event["type"], event["object"])
                backoff = _Backoff()
            except ApiError as error:
                known = error.status not in {404, 410}
                if known and not error.transient:
                    raise
                log.info("watch repeated", path=path, error=str(error))
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                log.info("watch repeated", path=path, error=repr(error))
            await backoff.wait()

    async def _watch(self, path: str, version: str) -> AsyncIterator[Body]:
        query = {
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": WATCH_SECONDS,
        }
        response = await self._send("GET", f"{path}?{urlencode(query)}", timeout=WATCH_TIMEOUT)
        async with response:
            if response.status != 200:
                await _answer(response)
            async for line in response.content:
                if not line.endswith(b"\n"):
                    return  # cut off in the middle of an event
                event: Body = json.loads(line)
                if event["type"] == "ERROR":
                    raise _error(event["object"])
                yield event


async def _answer(response: aiohttp.ClientResponse) -> Body:
    data = await response.read()
    try:
        body: Body = json.loads(data)
    except ValueError:
        body = {"code": response.status, "message": data[:200].decode(errors="replace")}
    if response.status >= 400:
        raise _error(body | {"code": response.status})
    return body


def _error(status: Body) -> ApiError:
    return ApiError(status.get("code", 500), status.get("reason", ""), status.get("message", ""))
