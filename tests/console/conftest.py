"""The console on the API server of this run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from partita.console.access import ViewerAccess
from partita.console.web_server import serve_console
from partita.kube.connect import connect
from partita.kube.errors import UnavailableError
from partita.store import informer
from support.api import Api
from support.clusters import ApiServer
from support.crds import install_crds

REAL = Path(__file__).with_name("test_real_access.py")

Serve = Callable[..., AbstractAsyncContextManager[str]]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave what asks for tokens to `make test-apiserver`: the embedded server knows no users."""
    real = config.getoption("--server") == "apiserver"
    return True if collection_path == REAL and not real else None


@pytest.fixture
async def serve(api_server: ApiServer, api: Api) -> Serve:
    """Runs a console; yields its URL."""
    await install_crds(api)

    @asynccontextmanager
    async def run(
        access: ViewerAccess | None = None, port: int = 0, **options: Any
    ) -> AsyncIterator[str]:
        shown = access or ViewerAccess()
        async with (
            connect(str(api_server.kubeconfig_of("partita-console"))) as client,
            serve_console(client, shown, host="127.0.0.1", port=port, **options) as (_, at),
        ):
            yield f"http://127.0.0.1:{at}"

    return run


@pytest.fixture
def watches_work(monkeypatch) -> asyncio.Event:
    """The console's watches fail until this is set."""
    real, work = informer.watch, asyncio.Event()

    @asynccontextmanager
    async def watch(*args: Any, **options: Any) -> AsyncIterator[Any]:
        if not work.is_set():
            raise UnavailableError("watch", 0, "down")
        async with real(*args, **options) as events:
            yield events

    monkeypatch.setattr(informer, "watch", watch)
    return work


@pytest.fixture
async def http(connections: None) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
async def clean(api: Api) -> AsyncIterator[None]:
    """Begins and ends without an object of ours, whoever made it: pages show the whole cluster."""
    await install_crds(api)
    await remove_all(api)
    yield
    await remove_all(api)


async def remove_all(api: Api) -> None:
    """Delete what pages show, in all namespaces."""
    for base, plurals in (
        ("/apis/partita.dev/v1alpha1", ("gpupartitions", "gpuservers", "sharedgpujobs")),
        ("/apis/resource.k8s.io/v1", ("resourceclaims",)),
        ("/api/v1", ("pods", "configmaps")),
    ):
        for plural in plurals:
            for one in (await api.get(f"{base}/{plural}")).ok().body["items"]:
                meta = one["metadata"]
                inside = f"/namespaces/{meta['namespace']}" if "namespace" in meta else ""
                path = f"{base}{inside}/{plural}/{meta['name']}"
                if meta.get("finalizers"):
                    await api.patch(path, {"metadata": {"finalizers": None}})
                await api.delete(path, {"gracePeriodSeconds": 0})
