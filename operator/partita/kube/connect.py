"""Opens the connection to the API server."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.request import getproxies_environment

from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration

from partita.kube.fence import fence_trace

__all__ = ["Access", "access_of", "connect", "in_cluster"]

CONNECTIONS = 100
"""Connections to the API server; what is written at the same time is bounded below that."""


@dataclass(frozen=True, slots=True)
class Access:
    """How the API server is reached, for those that are no client of ours."""

    server: str
    """Its URL."""
    authorization: str
    """Scheme and credentials, as in the HTTP header of that name; empty where there are none."""
    verified: bool
    """Whether its certificate is looked at."""
    authority: str | None
    """File of the authority that signed it."""
    certificate: str | None
    """File of our own certificate."""
    key: str | None
    """File of that one's key."""
    proxy: str | None
    """URL of a proxy on the way."""


async def access_of(api: ApiClient) -> Access:
    """Return how a client reaches the API server, with its token as it is now."""
    configuration = api.configuration
    authorization = await configuration.get_api_key_with_prefix("BearerToken")
    return Access(
        server=configuration.host,
        authorization=(authorization or "").strip(),
        verified=configuration.verify_ssl,
        authority=configuration.ssl_ca_cert,
        certificate=configuration.cert_file,
        key=configuration.key_file,
        proxy=configuration.proxy,
    )


def in_cluster() -> bool:
    """Tell whether we run in a Pod and nobody named a kubeconfig."""
    return "KUBERNETES_SERVICE_HOST" in os.environ and "KUBECONFIG" not in os.environ


@asynccontextmanager
async def connect(kubeconfig: str | None = None) -> AsyncIterator[ApiClient]:
    """Connect by a kubeconfig, else the Pod's service account, else the usual file."""
    configuration = Configuration()
    if kubeconfig is None and in_cluster():
        config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    else:
        await config.load_kube_config(  # type: ignore[no-untyped-call]
            config_file=kubeconfig, client_configuration=configuration
        )
    configuration.connection_pool_maxsize = CONNECTIONS
    configuration.trace_configs = [fence_trace()]
    if not getproxies_environment():
        # Looking for a proxy costs aiohttp a thread's work at every request.
        configuration.client_session_kwargs = {"trust_env": False}
    async with ApiClient(configuration) as api:
        yield api
