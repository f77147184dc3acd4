"""Opens the connection to the API server."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.request import getproxies_environment

from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration

__all__ = ["connect", "in_cluster"]

CONNECTIONS = 100
"""Connections to the API server; what is written at the same time is bounded below that."""


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
    if not getproxies_environment():
        # Looking for a proxy costs aiohttp a thread's work at every request.
        configuration.client_session_kwargs = {"trust_env": False}
    async with ApiClient(configuration) as api:
        yield api
