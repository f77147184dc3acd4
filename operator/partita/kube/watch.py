"""Watches a kind of object without kopf, for what only reads."""

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlencode

import aiohttp
import orjson
from kubernetes.aio.client import ApiClient
from kubernetes.aio.client.exceptions import ApiException

from partita.kube.client import Kind
from partita.kube.errors import KubernetesError, UnavailableError, from_response

__all__ = ["watch"]

_SECONDS = 120
"""How long one watch lasts; the API server ends it."""
_TIMEOUT = aiohttp.ClientTimeout(total=_SECONDS + 30, sock_connect=5)
"""A connection that died in silence is found out by this."""


async def watch(
    api: ApiClient, kind: Kind, version: str
) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """Yield type and object of each change after a version, until the API server ends the watch.

    Raises
    ------
    GoneError
        The version is too old: list again.
    KubernetesError
        The watch was refused, or broke.
    """
    query = {
        "watch": "true",
        "resourceVersion": version,
        "allowWatchBookmarks": "true",
        "timeoutSeconds": str(_SECONDS),
    }
    url = f"{api.configuration.host}{kind.path()}?{urlencode(query)}"
    what = f"watch {kind.plural}"
    headers = {"Accept": "application/json", "User-Agent": "partita"}
    try:
        await api.update_params_for_auth(
            headers, [], ["BearerToken"], url, "GET", None, request_auth=None
        )
        response = await api.rest_client.request(  # type: ignore[no-untyped-call]
            "GET", url, headers=headers, _request_timeout=_TIMEOUT
        )
        try:
            if response.status != 200:
                raise from_response(what, response.status, await response.read(), None)
            async for line in _lines(response.response.content):
                event = orjson.loads(line)
                if event["type"] == "ERROR":
                    code = int(event["object"].get("code", 500))
                    raise from_response(what, code, orjson.dumps(event["object"]), None)
                yield event["type"], event["object"]
        finally:
            response.response.close()
    except ApiException as error:
        raise KubernetesError(what, error.status or 0, str(error.reason)) from error
    except (aiohttp.ClientError, TimeoutError, OSError, orjson.JSONDecodeError) as error:
        raise UnavailableError(what, 0, repr(error)) from error


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Split at line ends; aiohttp's own `readline` refuses lines as long as objects may be."""
    rest = bytearray()
    async for chunk in content.iter_any():
        rest += chunk
        if b"\n" not in chunk:
            continue
        *lines, last = bytes(rest).split(b"\n")
        rest = bytearray(last)
        for line in lines:
            yield line
