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
from manifests.rendering import SINGLE_NODE, write_chart
from support.api import Api
from support.clusters import ApiServer, check_for_tests, leave_out, within
from support.kubectl import Kubectl
from support.polling import until

HERE = Path(__file__).parent
LAST_POLICY = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: last}
spec:
  matchConstraints:
    resourceRules:
      - {apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}
  validations: [{expression: "object.metadata.name != 'refused'", message: the last policy holds}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: last}
spec: {policyName: last, validationActions: [Deny]}
"""


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
            "kustomize and helm are not built: run "
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
    """The cluster in which the policies of the installation hold; returns what that printed."""
    return asyncio.run(install(kubectl))


async def install(kubectl: Kubectl) -> str:
    """Install by one command, and wait until the API server enforces all policies.

    It reads policies and bindings in the order in which they were created, and takes up together
    all that it has read (`policy_source.go` of k8s.io/apiserver). So all hold once the last does.
    """
    printed = (await kubectl("apply", "-k", str(SINGLE_NODE))).ok()
    (await kubectl("apply", "-f", "-", stdin=LAST_POLICY)).ok()

    async def holds() -> bool:
        answer = await kubectl("create", "configmap", "refused", "--dry-run=server")
        return "the last policy holds" in answer.err

    await until(holds)
    return printed


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
def enforced(installed: str, namespace: str) -> str:
    """A namespace in which the policies hold."""
    return namespace
