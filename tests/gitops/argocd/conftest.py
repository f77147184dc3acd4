"""`make test-gitops`: what needs Argo CD, which Go builds; left alone unless asked for."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typing_extensions import override

from apiserver.binaries import ARGOCD, MANIFESTS
from apiserver.build import assets, cached
from apiserver.controlplane import ControlPlane
from gitops.argocd.loopback import keep_to_own_network
from gitops.argocd.servers import CONFIGURATION, NAMESPACE, ArgoCD, resource_definitions
from gitops.lua import CONFIG_MAP
from support.api import Api
from support.clusters import ApiServer, check_for_tests, within
from support.on_request import asked_for

TEST_SECONDS = 600
FOLDER = Path(__file__).parent
CONTROLLERS = ("garbage-collector-controller", "namespace-controller", "resourceclaim-controller")
TOOLS = {"redis-server": "redis-server", "git": "git"}
"""Commands, and the Debian package of each."""


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a machine that lacks something, before any test: none is left out silently."""
    if not asked_for(config, "--gitops"):
        return
    if lacking := [package for tool, package in TOOLS.items() if not shutil.which(tool)]:
        raise pytest.UsageError(
            "NOT RUN: no test with Argo CD, because this machine lacks "
            f"{', '.join(lacking)}: apt-get install --no-install-recommends {' '.join(lacking)}"
        )
    if None in {cached(), cached(what=MANIFESTS), cached(what=ARGOCD)}:
        raise pytest.UsageError(
            "NOT RUN: no test with Argo CD, because it is not built: run `make test-gitops`."
        )
    resource_definitions()  # while there is a network to get them from
    try:
        keep_to_own_network()
    except OSError as error:
        raise pytest.UsageError(
            f"NOT RUN: no test with Argo CD, because this process gets {error.strerror}. Run it as "
            "root, or let users make namespaces (sysctl user.max_user_namespaces)."
        ) from None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in within(FOLDER, items):
        item.add_marker(pytest.mark.timeout(TEST_SECONDS))


class Plane(ControlPlane):
    """Without the controllers of Deployments: `ClusterStandIn` writes their status."""

    @override
    def controller_flags(self) -> list[str]:
        return [f"--controllers={','.join(CONTROLLERS)}"]


@pytest.fixture(scope="session")
def plane() -> Iterator[ControlPlane]:
    """An empty cluster."""
    with Plane(assets()) as plane:
        check_for_tests(plane.kubeconfig)
        yield plane


@pytest.fixture(scope="session")
def api_server(plane: ControlPlane) -> ApiServer:
    """The cluster's API server, for the fixtures that every tier has."""
    return ApiServer.of(plane)


@pytest.fixture(scope="session")
def argocd(
    api_server: ApiServer, plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ArgoCD]:
    """Argo CD, told of our kinds as its administrator is to tell it."""
    asyncio.run(_install(api_server))
    folder = tmp_path_factory.mktemp("argocd")
    binary = assets(what=ARGOCD) / "argocd"
    with ArgoCD(plane, binary, assets(what=MANIFESTS), folder) as argocd:
        yield argocd


async def _install(api_server: ApiServer) -> None:
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    async with api_server.session() as session:
        api = api_server.api(session)
        for definition in resource_definitions():
            (await api.post(definitions, definition)).ok()
        (await api.post("/api/v1/namespaces", _an("Namespace", NAMESPACE))).ok()
        core = f"/api/v1/namespaces/{NAMESPACE}"
        for name in ("argocd-cm", *CONFIGURATION):
            (await api.post(f"{core}/configmaps", _an("ConfigMap", name))).ok()
        secret = _an("Secret", "argocd-secret") | {"stringData": {"server.secretkey": "for tests"}}
        (await api.post(f"{core}/secrets", secret)).ok()
        ours = yaml.safe_load(CONFIG_MAP.read_text())
        (await api.apply(f"{core}/configmaps/argocd-cm", ours, "kubectl")).ok()
        await _established(api, f"{definitions}/applications.argoproj.io")
        await _established(api, f"{definitions}/applicationsets.argoproj.io")
        await _established(api, f"{definitions}/appprojects.argoproj.io")


async def _established(api: Api, path: str) -> None:
    def is_established(body: dict[str, Any]) -> bool:
        conditions = body.get("status", {}).get("conditions") or []
        return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)

    await api.until(path, is_established)


def _an(kind: str, name: str) -> dict[str, object]:
    labels = {"app.kubernetes.io/part-of": "argocd"}
    meta = {"name": name, "labels": labels}
    return {"apiVersion": "v1", "kind": kind, "metadata": meta}
