"""Workloads beside kube-scheduler: with a real API server alone, whose other tests need none."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import pytest

from apiserver.build import assets
from apiserver.rights import BASE, install_rights
from kube_scheduler.cluster import SchedulingCluster
from kube_scheduler.plane import SchedulingControlPlane
from support.api import Api
from support.clusters import ApiServer, check_for_tests, within
from support.crds import install_kinds
from support.history import PATHS, History
from support.judged import judged

FOLDER = Path(__file__).parent
TEST_SECONDS = 300
RECORDED = {**PATHS, "jobs": "/apis/batch/v1/jobs", "deployments": "/apis/apps/v1/deployments"}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return None if config.getoption("--server") == "apiserver" else True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in within(FOLDER, items):
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_SECONDS, func_only=True))


@pytest.fixture(scope="session")
def plane() -> Iterator[SchedulingControlPlane]:
    """A control plane with Partita's kinds, rights and admission policies."""
    kubectl = assets() / "kubectl"
    with SchedulingControlPlane(assets()) as plane:
        check_for_tests(plane.kubeconfig)
        install_rights(kubectl, plane.kubeconfig)
        policies = [f"--filename={BASE / name}.yaml" for name in ("admission", "claims-admission")]
        command = [kubectl, f"--kubeconfig={plane.kubeconfig}", "apply", *policies]
        subprocess.run(command, check=True, capture_output=True)
        server = ApiServer.of(plane)

        async def install() -> None:
            async with server.session() as session:
                await install_kinds(server.api(session))

        asyncio.run(install())
        yield plane


@pytest.fixture(scope="session")
def api_server(plane: SchedulingControlPlane) -> ApiServer:
    """The API server, for the fixtures that every tier has."""
    return ApiServer.of(plane)


@pytest.fixture
def recorded() -> Mapping[str, str]:
    """The kinds whose versions are recorded, and their paths."""
    return RECORDED


@pytest.fixture
async def cluster(
    api_server: ApiServer, api: Api, namespace: str, recorded: Mapping[str, str]
) -> AsyncIterator[SchedulingCluster]:
    """Nodes and an operator beside kube-scheduler, and a kubelet that runs Pods with claims."""
    history = History(api, recorded)
    async with judged(SchedulingCluster, api, history, api_server, namespace) as cluster:
        yield cluster


@pytest.fixture
async def urgent(api: Api) -> AsyncIterator[str]:
    """A PriorityClass that preempts others."""
    name, path = "test-urgent", "/apis/scheduling.k8s.io/v1/priorityclasses"
    (await api.post(path, {"metadata": {"name": name}, "value": 1000})).ok()
    yield name
    await api.delete(f"{path}/{name}")
