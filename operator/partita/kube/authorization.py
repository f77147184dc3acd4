"""The token of the day in each request: kubelet renews that of a service account in its file."""

from collections.abc import MutableMapping

import aiohttp
from kubernetes.aio.client import ApiClient
from kubernetes.aio.config import ConfigException

__all__ = ["authorize"]


async def authorize(api: ApiClient, headers: MutableMapping[str, str], method: str) -> None:
    """Add the token to the headers of a request.

    Raises
    ------
    aiohttp.ClientConnectionError
        If it cannot be read now, for example because too many files are open.
    """
    try:
        await api.update_params_for_auth(
            headers, [], ["BearerToken"], "", method, None, request_auth=None
        )
    except (ConfigException, OSError) as error:
        raise aiohttp.ClientConnectionError(f"no token: {error}") from error
