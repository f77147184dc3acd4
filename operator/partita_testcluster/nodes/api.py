"""Raw JSON calls with the operator's client, for all writes of the nodes.

Calls are repeated while the API server is unreachable, overloaded or failing. A rejected call
raises `KubernetesError`.
"""

import asyncio
from typing import Any, Final
from urllib.request import getproxies

import structlog
from kubernetes.aio.client import ApiClient, Configuration

from partita.kube.client import Kube
from partita.kube.errors import ConflictError, UnavailableError

__all__ = ["APIServer"]

log = structlog.get_logger(__name__)

CONCURRENCY: Final = 16
"""Concurrent calls: enough to hide latency, few enough to leave capacity for other clients."""
_PAUSE: Final = 0.05
"""Seconds before a patch is repeated after a conflict."""

Body = dict[str, Any]


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
        """The client, with which informers list and watch."""
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
        KubernetesError
            If the API server rejects the call.
        """
        versioned = "resourceVersion" in (body or {}).get("metadata", {})
        while True:
            try:
                async with self._slots:
                    return await self.kube.request(method, path, body=body)
            except UnavailableError as error:
                log.info("call repeated", error=str(error))
            except ConflictError:
                if method != "PATCH" or versioned:
                    raise
                await asyncio.sleep(_PAUSE)
