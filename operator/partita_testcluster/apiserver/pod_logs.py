"""A Pod's log, which is requested from the kubelet of its node."""

from __future__ import annotations

from typing import Any

import aiohttp
from aiohttp import web

from partita_testcluster.apiserver.errors import APIError, bad_request
from partita_testcluster.apiserver.meta import dig
from partita_testcluster.apiserver.resources import Target

__all__ = ["serve_log"]

_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=10)


async def serve_log(
    request: web.BaseRequest, target: Target, node: dict[str, Any] | None
) -> web.StreamResponse:
    """Stream the kubelet's response to the client.

    Parameters
    ----------
    target
        The Pod.
    node
        The Pod's node; `None` if the Pod has no node, so that the log is empty.

    Raises
    ------
    APIError
        400 if the container is wrong or has no log, 500 if the kubelet cannot be reached.
    """
    container = _container(target, request.query.get("container", ""))
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    if node is None:
        await response.prepare(request)
        return response
    address = next((a["address"] for a in dig(node, "status.addresses") or ()), "")
    port = dig(node, "status.daemonEndpoints.kubeletEndpoint.Port")
    url = f"http://{address}:{port}/containerLogs/{target.space}/{target.name}/{container}"
    query = {k: v for k, v in request.query.items() if k not in ("container", "pretty")}
    try:
        async with (
            aiohttp.ClientSession(timeout=_TIMEOUT) as session,
            session.get(url, params=query) as kubelet,
        ):
            if kubelet.status != 200:
                raise bad_request(await kubelet.text())
            await response.prepare(request)
            async for chunk in kubelet.content.iter_any():
                await response.write(chunk)
    except (aiohttp.ClientError, ValueError) as e:
        if not response.prepared:
            raise APIError(500, "InternalError", f"Internal error occurred: {e}") from e
    except ConnectionError:
        pass  # the client has disconnected
    return response


def _container(target: Target, asked: str) -> str:
    """Return the container whose log is requested (as in pkg/registry/core/pod/strategy.go)."""
    names = [c["name"] for c in target.existing().obj["spec"]["containers"]]
    if asked and asked not in names:
        raise bad_request(f"container {asked} is not valid for pod {target.name}")
    if not asked and len(names) > 1:
        raise bad_request(
            f"a container name must be specified for pod {target.name}, "
            f"choose one of: [{' '.join(names)}]"
        )
    return str(asked or names[0])
