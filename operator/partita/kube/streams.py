"""Streamed responses of the API server, such as a watch or a log."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio.client import ApiClient
from kubernetes.aio.client.exceptions import ApiException

from partita.kube.authorization import authorize
from partita.kube.errors import KubernetesError, from_response, unanswered

__all__ = ["stream"]

_CONNECT_SECONDS = 5
_SILENT_SECONDS = 90
"""After which a watch without data counts as broken: the API server sends a bookmark each minute
(`defaultBookmarkFrequency` in k8s.io/apiserver 0.36, pkg/storage/cacher/cacher.go)."""


@asynccontextmanager
async def stream(
    api: ApiClient, what: str, path: str, query: Mapping[str, str], *, seconds: float | None
) -> AsyncIterator[aiohttp.StreamReader]:
    """Send a request and yield the stream of its response. The connection ends with the block.

    Parameters
    ----------
    what
        Name of the request in errors.
    seconds
        Maximum duration; None for no limit.

    Raises
    ------
    KubernetesError
        If the request is rejected or the connection breaks.
    """
    url = f"{api.configuration.host}{path}?{urlencode(query)}"
    headers = {"Accept": "application/json, */*", "User-Agent": "partita"}
    silent = None if seconds is None else _SILENT_SECONDS
    timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=_CONNECT_SECONDS, sock_read=silent)
    try:
        await authorize(api, headers, "GET")
        response = await api.rest_client.request(  # type: ignore[no-untyped-call]
            "GET", url, headers=headers, _request_timeout=timeout
        )
        try:
            if response.status != 200:
                raise from_response(what, response.status, await response.read(), None)
            yield response.response.content
        finally:
            _abort(response.response)
    except ApiException as error:
        raise KubernetesError(what, error.status or 0, str(error.reason)) from error
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise unanswered(what, error) from error


def _abort(response: aiohttp.ClientResponse) -> None:
    """End a connection without TLS's closing handshake, for which an event loop may not wait."""
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()
    response.close()
