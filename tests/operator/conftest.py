"""One whole system for each test of the operator, judged at the test's end."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from support.api import Api
from support.clusters import ApiServer
from support.crds import install_crds
from support.history import History
from support.operator import OPERATOR_NAMESPACE, System, prepare_namespace


@pytest.fixture
async def system(
    api_server: ApiServer, api: Api, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[System]:
    """An API server with Partita's kinds, and a record of all that happens on it."""
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig))  # the operator sets it
    await install_crds(api)
    for account_namespace in (namespace, OPERATOR_NAMESPACE):
        meta = {"name": account_namespace}
        await api.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
        await prepare_namespace(api, account_namespace, "partita-agent")
    history = History(api)
    async with history.recording():
        system = System(api, history, api_server.kubeconfig, namespace)
        yield system
        problems = history.problems()
        await system.clean()
    assert not problems, "\n".join(problems)
