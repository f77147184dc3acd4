"""Simulated nodes against the API server of this run, and the objects they work with."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from uuid import uuid4

import pytest
import yaml

from nodes.simulated_cluster import SimulatedCluster
from partita_testcluster.nodes import NodeSpec, run_nodes
from support.api import Api
from support.clusters import ApiServer
from support.polling import TIMEOUT

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


async def install(api: Api, plural: str) -> None:
    """Install a definition, and wait until its kind is served."""
    file = Path(__file__).parents[2] / "crds" / f"partita.dev_{plural}.yaml"
    created = await api.post(CRDS, yaml.safe_load(file.read_text()))
    assert created.status in {201, 409}, created
    await SimulatedCluster(api, "").until(f"/apis/partita.dev/v1alpha1/{plural}", lambda _: True)


@pytest.fixture
async def gpuservers_served(api: Api) -> None:
    """The GPUServers' definition is installed."""
    await install(api, "gpuservers")


@pytest.fixture
async def application_profiles_served(api: Api) -> None:
    """The ApplicationProfiles' definition is installed."""
    await install(api, "applicationprofiles")


class Nodes:
    """Simulated nodes that a test starts and stops."""

    def __init__(self, kubeconfig: Path, api: Api) -> None:
        self._kubeconfig = kubeconfig
        self._api = api
        self._names: set[str] = set()

    @contextlib.asynccontextmanager
    async def running(self, *specs: NodeSpec, speed: float = 20.0) -> AsyncIterator[None]:
        self._names |= {spec.name for spec in specs}
        stop, started = asyncio.Event(), asyncio.Event()
        task = asyncio.create_task(
            run_nodes(
                self._kubeconfig,
                nodes=specs,
                stop=stop,
                speed=speed,
                started=started,
            )
        )
        waiting = asyncio.create_task(started.wait())
        async with asyncio.timeout(TIMEOUT):
            await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        try:
            if task.done():
                task.result()
            yield
        finally:
            stop.set()
            await task

    async def remove(self) -> None:
        for name in self._names:
            await self._api.delete(f"/api/v1/nodes/{name}")


@pytest.fixture
async def nodes(api_server: ApiServer, api: Api, gpuservers_served: None) -> AsyncIterator[Nodes]:
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
