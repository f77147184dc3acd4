"""`make test-cluster`: what needs a node, and so root; left alone unless asked for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from apiserver.binaries import NODE
from apiserver.build import cached
from cluster import preflight
from cluster.cluster import Cluster, running_cluster
from cluster.gpus import NodeGPUs
from cluster.images import JOB, PARTITA, Image, partita_image, write_busybox
from cluster.jobs import (
    PARTITIONS,
    Carve,
    Jobs,
    all_ready,
    give_back,
    install,
    make_partition,
    server_path,
)
from cluster.pods import restricted_namespace
from cluster.workloads import KINDS, Workloads, nothing_left
from gpu.fake import MIB
from support.api import Api
from support.clusters import ApiServer, check_for_tests, within
from support.kubectl import Kubectl
from support.on_request import asked_for

TEST_SECONDS = 240
"""Of one test; what all of them share, a cluster and images, has its own limits."""

SHARED = "shared"
"""The partition of both GPUs that most tests use."""

FOLDER = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a machine that cannot run a cluster, before any test: none is left out silently."""
    if not asked_for(config, "--cluster"):
        return
    if lacking := preflight.missing():
        raise pytest.UsageError(
            "NOT RUN: no test of the cluster, because this machine lacks\n"
            + "\n".join(f"- {what}" for what in lacking)
        )
    if cached() is None or cached(what=NODE) is None:
        raise pytest.UsageError(
            "NOT RUN: no test of the cluster, because its servers are not built: run "
            "`make test-cluster`."
        )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in within(FOLDER, items):
        item.add_marker(pytest.mark.timeout(TEST_SECONDS, func_only=True))


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A cluster, the same for all tests of the run."""
    with running_cluster() as running:
        yield running


@pytest.fixture(scope="session")
def api_server(cluster: Cluster) -> ApiServer:
    """The cluster's API server, for the fixtures that every tier has."""
    plane = cluster.plane
    check_for_tests(plane.kubeconfig)
    return ApiServer.of(plane)


@pytest.fixture(scope="session")
def image(cluster: Cluster) -> Image:
    """Partita's image of this work tree, known to the node."""
    built = partita_image()
    cluster.load(built.archive)
    return built


@pytest.fixture(scope="session")
def gpus(cluster: Cluster) -> NodeGPUs:
    """Two GPUs of the node, as Kubernetes sees them: `nvidia.com/gpu`."""
    found = NodeGPUs(cluster.node)
    found.plug_in(2)
    return found


@pytest.fixture(scope="session")
def partita(
    cluster: Cluster, image: Image, gpus: NodeGPUs, api_server: ApiServer, kubectl: Kubectl
) -> Cluster:
    """The cluster with Partita in it, and an image for jobs."""
    archive = cluster.slot.folder / "job.tar"
    write_busybox(archive, JOB, ["fake-cuda"], programs=[gpus.built.program], base=PARTITA)
    cluster.load(archive)

    async def install_all() -> None:
        async with api_server.session() as session:
            await install(api_server.api(session), kubectl)

    asyncio.run(install_all())
    return cluster


@pytest.fixture
async def restricted(api: Api, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """A namespace whose Pods the API server holds to Pod Security `restricted`."""
    name = await restricted_namespace(api)
    yield name
    await api.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture
async def carve(
    partita: Cluster, gpus: NodeGPUs, api: Api, restricted: str
) -> AsyncIterator[Carve]:
    """Makes a partition of one GPU, once no other has one; GPUs are as before at the end."""
    whole = gpus.figure("memory")
    await give_back(api, SHARED, 2)

    async def make(memory: int = 40960, **spec: Any) -> Jobs:
        for gpu in range(2):
            gpus.add(gpu, memory=memory * MIB)
        await make_partition(api, "crowd", 1, **spec)
        return Jobs(api, restricted, "crowd")

    yield make
    await api.delete(f"/apis/partita.dev/v1alpha1/namespaces/{restricted}/sharedgpujobs")
    await give_back(api, "crowd", 1)
    for gpu in range(2):
        gpus.add(gpu, memory=whole)


@pytest.fixture
async def shared(partita: Cluster, gpus: NodeGPUs, api: Api) -> str:
    """A partition of both GPUs, shared by MPS; jobs share one GPU while there is room."""
    if (await api.get(f"{PARTITIONS}/{SHARED}")).status == 404:
        await make_partition(api, SHARED, 2, objective="Packing")
    await api.until(server_path(), all_ready(2))
    return SHARED


@pytest.fixture
async def jobs(api: Api, restricted: str, shared: str) -> AsyncIterator[Jobs]:
    """The jobs of a restricted namespace in that partition; none of them is left."""
    yield Jobs(api, restricted, shared)
    await api.delete(f"/apis/partita.dev/v1alpha1/namespaces/{restricted}/sharedgpujobs")
    await api.until(
        server_path(),
        lambda found: not any(s.get("status", {}).get("allocations") for s in found["items"]),
    )


@pytest.fixture
async def workloads(
    cluster: Cluster, api: Api, restricted: str, shared: str
) -> AsyncIterator[Workloads]:
    """The workloads of a restricted namespace in that partition; none of them is left."""
    made = Workloads(api, restricted, shared)
    yield made
    for kind in reversed(KINDS):  # a Pod that is deleted before its controller is replaced
        options = {"propagationPolicy": "Background"}
        await api.delete(made.path(kind), options, labelSelector="!partita.dev/job")
    await nothing_left(cluster, api, restricted)
