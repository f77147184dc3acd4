"""An empty cluster to install into; what needs it is left to `make test-apiserver`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from apiserver.binaries import MANIFESTS
from apiserver.build import assets, cached
from apiserver.controlplane import ControlPlane
from manifests.accounts import client_of
from manifests.pods import CORE, TAKEN_UP, env, pod
from manifests.rendering import SINGLE_NODE, write_chart
from manifests.schemas import write_schemas
from support.api import Api
from support.clusters import ApiServer, check_for_tests, leave_out, within
from support.kubectl import Kubectl
from support.polling import until

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if reason := why_not(config):
        ours = within(HERE, items)
        left_out = {item for item in ours if "api_server" in getattr(item, "fixturenames", ())}
        leave_out(config, items, left_out, reason)


def why_not(config: pytest.Config) -> str:
    """Say why manifests cannot be tried on a cluster."""
    if config.getoption("--server") == "embedded":
        return "manifests are tried on a real API server: run `make test-apiserver`"
    if cached(what=MANIFESTS) is None:
        raise pytest.UsageError(
            "kustomize, helm and kubeconform are not built: run "
            "`make test-apiserver`, or set PARTITA_MANIFEST_ASSETS."
        )
    return ""


@pytest.fixture(scope="session")
def api_server() -> Iterator[ApiServer]:
    """A cluster that knows nothing of Partita yet."""
    with ControlPlane(assets()) as plane:
        check_for_tests(plane.kubeconfig)
        yield ApiServer.of(plane)


@pytest.fixture(scope="session")
def kubectl(api_server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    """Runs kubectl on that cluster; the other suites' would be one of theirs, made before."""
    return Kubectl(
        assets() / "kubectl", api_server.kubeconfig, home=tmp_path_factory.mktemp("kubectl")
    )


@pytest.fixture(scope="session")
def installed(kubectl: Kubectl) -> str:
    """The cluster after the one command of the installation; returns what it printed."""
    return asyncio.run(kubectl("apply", "-k", str(SINGLE_NODE))).ok()


@pytest.fixture(scope="session")
def schemas(
    api_server: ApiServer, installed: str, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The API server's own schemas, ours among them, for kubeconform."""
    folder = tmp_path_factory.mktemp("schemas")
    asyncio.run(write_schemas(api_server, folder))
    return folder


@pytest.fixture(scope="session")
def chart(api_server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Helm chart of `manifests/base`."""
    return write_chart(tmp_path_factory.mktemp("chart") / "partita")


@pytest.fixture
async def operator(api_server: ApiServer) -> AsyncIterator[Api]:
    """A client with the operator's account."""
    async with client_of(api_server.tokens["partita-operator"]) as session:
        yield api_server.api(session)


@pytest.fixture
async def enforced(api: Api, installed: str, namespace: str) -> str:
    """A namespace in which the policies hold by now."""
    path = f"{CORE}/{namespace}/pods"

    async def is_refused() -> bool:
        return (await api.post(path, pod(env=env("CUDA_MPS_X")), dryRun="All")).status == 403

    await until(is_refused, TAKEN_UP)
    return namespace
