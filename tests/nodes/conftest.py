"""Simulated nodes against the API server of this run, and the objects they work with."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from uuid import uuid4

import pytest

from nodes.simulated_cluster import SimulatedCluster
from partita_testcluster.nodes import NodeSpec
from support.api import Api
from support.clusters import ApiServer
from support.crds import install_crds
from support.simulated_nodes import simulated_nodes


@pytest.fixture
async def partita_served(api: Api) -> None:
    """Partita's definitions are installed."""
    await install_crds(api)


class Nodes:
    """Simulated nodes that a test starts and stops."""

    def __init__(self, kubeconfig: Path, api: Api) -> None:
        self._kubeconfig = kubeconfig
        self._api = api
        self._names: set[str] = set()

    @contextlib.asynccontextmanager
    async def running(self, *specs: NodeSpec, speed: float = 20.0) -> AsyncIterator[None]:
        self._names |= {spec.name for spec in specs}
        async with simulated_nodes(self._kubeconfig, specs, speed=speed):
            yield

    async def remove(self) -> None:
        for name in self._names:
            await self._api.delete(f"/api/v1/nodes/{name}")


@pytest.fixture
async def nodes(api_server: ApiServer, api: Api, partita_served: None) -> AsyncIterator[Nodes]:
    """Starts simulated nodes."""
    nodes = Nodes(api_server.kubeconfig, api)
    yield nodes
    await nodes.remove()


@pytest.fixture
async def cluster(api: Api, namespace: str) -> AsyncIterator[SimulatedCluster]:
    """Creates and awaits what nodes work with, and removes it at the end."""
    cluster = SimulatedCluster(api, namespace)
    await cluster.prepare()
    yield cluster
    await cluster.clean()


@pytest.fixture
def node_spec() -> Callable[..., NodeSpec]:
    """Describes a node of a name that no other test uses."""
    name = f"node-{uuid4().hex[:8]}"
    return lambda suffix="", **spec: NodeSpec(name + suffix, **spec)
