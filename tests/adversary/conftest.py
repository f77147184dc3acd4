"""One cluster with a victim and an attacker for all attacks; on a real API server as installed."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from adversary.actions import Action
from adversary.stage import Stage
from support.clusters import ApiServer, connections_ended, leave_out, server_of_its_own, within

HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out, where there is no RBAC and no admission, what these alone stop."""
    if config.getoption("--server") == "apiserver":
        return
    left_out = {item for item in within(HERE, items) if _needs_real(item)}
    reason = "RBAC and admission stop them, which a real API server has: run `make test-apiserver`"
    leave_out(config, items, left_out, reason)


def _needs_real(item: pytest.Item) -> bool:
    params = (
        item.callspec.params
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
        else {}
    )
    action = params.get("action")
    return isinstance(action, Action) and action.real


@pytest.fixture(scope="session")
def api_server(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApiServer]:
    """A cluster of its own: a real one has Partita installed as its README says."""
    folder = tmp_path_factory.mktemp("api")
    with server_of_its_own(pytestconfig, folder, "overlays/single-node") as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def stage(api_server: ApiServer) -> AsyncIterator[Stage]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", str(api_server.kubeconfig))  # the operator sets it
        patch.setenv("SSL_CERT_FILE", os.devnull)

        stage = Stage(api_server)
        yield stage
        await stage.close()
        await connections_ended()
