"""Partita on a control plane of the oldest Kubernetes that it supports; for `make test-apiserver`.

kube-apiserver, kube-controller-manager and kube-scheduler emulate that version. No kubelet runs. All
other tests with a real API server run on the newest version.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from apiserver.build import assets
from apiserver.controlplane import ControlPlane
from support.api import Api
from support.clusters import ApiServer, check_for_tests, leave_out, within
from support.kubectl import Kubectl
from support.operator_process import Forge
from versions.cluster import Cluster

HERE = Path(__file__).parent

OLDEST = "1.34"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--server") == "embedded":
        reason = "the oldest Kubernetes is a real control plane: run `make test-apiserver`"
        leave_out(config, items, set(within(HERE, items)), reason)


class SchedulingControlPlane(ControlPlane):
    """A control plane that binds Pods."""

    scheduler = True


@pytest.fixture(scope="session")
def api_server() -> Iterator[ApiServer]:
    """A control plane of this version."""
    with SchedulingControlPlane(assets(), emulated=OLDEST) as plane:
        check_for_tests(plane.kubeconfig)
        yield ApiServer.of(plane)


@pytest.fixture(scope="session")
def kubectl(api_server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    """Runs kubectl on this control plane."""
    home = tmp_path_factory.mktemp("kubectl")
    return Kubectl(assets() / "kubectl", api_server.kubeconfig, home=home)


@pytest.fixture(scope="session")
def forge() -> Iterator[Forge]:
    """Starts operators."""
    with Forge() as forge:
        yield forge


@pytest.fixture(scope="session")
def installed(
    api_server: ApiServer, kubectl: Kubectl, forge: Forge, tmp_path_factory: pytest.TempPathFactory
) -> int:
    """Partita as its users install it, with two GPUs; returns the id of the operator's process."""
    log = tmp_path_factory.mktemp("operator") / "log"

    async def install() -> int:
        async with api_server.session() as session:
            cluster = Cluster(api_server.api(session), "")
            await cluster.install(kubectl)
            kubeconfig = api_server.kubeconfig_of("partita-operator")
            operator = await forge.start(kubeconfig, log)
            await cluster.share_gpus()
            return operator.pid

    return asyncio.run(install())


@pytest.fixture
async def cluster(installed: int, api: Api, namespace: str) -> AsyncIterator[Cluster]:
    """The cluster, with a namespace of the test's own; its Pods are gone at the end."""
    cluster = Cluster(api, namespace, operator=installed)
    yield cluster
    await cluster.clean()
