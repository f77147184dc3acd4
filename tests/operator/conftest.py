"""One whole system for each test of the operator, judged at the test's end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from support.api import Api
from support.behind_proxy import behind
from support.clusters import ApiServer
from support.crds import install_kinds, prepare_namespace
from support.history import History
from support.judged import judged
from support.operator_process import Forge
from support.system import System

__all__ = ["behind"]

_INSTALLED: set[str] = set()
"""API servers that have Partita's kinds: generating these takes longer than many a test."""


@pytest.fixture
async def installed(api_server: ApiServer, api: Api) -> None:
    """Partita's kinds are served, and the operator's namespace is there."""
    if api_server.url in _INSTALLED:
        return
    await install_kinds(api)
    _INSTALLED.add(api_server.url)


@pytest.fixture
async def system(
    api_server: ApiServer,
    api: Api,
    installed: None,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[System]:
    """An API server with Partita's kinds, and a record of all that happens on it."""
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig))  # the operator sets it
    await prepare_namespace(api, namespace)
    async with judged(System, api, History(api), api_server, namespace) as system:
        yield system


@pytest.fixture(scope="session")
def forge() -> Iterator[Forge]:
    """Starts operators as processes of their own."""
    with Forge() as forge:
        yield forge
