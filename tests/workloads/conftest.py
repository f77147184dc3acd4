"""A real API server with the definitions of other projects; left to `make test-apiserver`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from apiserver.build import assets
from apiserver.controlplane import ControlPlane
from support.clusters import ApiServer, check_for_tests, leave_out, within
from support.kubectl import Kubectl
from workloads.definitions import DEFINITIONS, download

HERE = Path(__file__).parent

FIRST_SECONDS = 300
"""For the first test, which waits for downloads of 70 MB in all."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    ours = {i for i in within(HERE, items) if "api_server" in getattr(i, "fixturenames", ())}
    for item in ours:
        item.add_marker(pytest.mark.timeout(FIRST_SECONDS))
    if config.getoption("--server") == "embedded":
        reason = "other projects' workloads are tried on a real API server: `make test-apiserver`"
        leave_out(config, items, ours, reason)


@pytest.fixture(scope="session")
def api_server() -> Iterator[ApiServer]:
    """A cluster that knows nothing of Partita."""
    with ControlPlane(assets()) as plane:
        check_for_tests(plane.kubeconfig)
        yield ApiServer.of(plane)


@pytest.fixture(scope="session")
def kubectl(api_server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    """Runs kubectl on that cluster, which knows the kinds of `DEFINITIONS`."""
    home = tmp_path_factory.mktemp("kubectl")
    run = Kubectl(assets() / "kubectl", api_server.kubeconfig, home=home)
    files = [file for module in DEFINITIONS for file in download(module)]
    asyncio.run(define(run, files))
    return run


async def define(kubectl: Kubectl, files: Sequence[Path]) -> None:
    """Make the definitions of these files, and wait until they are served."""
    for file in files:  # all in one call take a busy API server longer than a call may last
        (await kubectl("create", f"--filename={file}")).ok()
        await kubectl.established(f"--filename={file}")
