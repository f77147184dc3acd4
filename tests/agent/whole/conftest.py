"""A node with the whole agent, in which what waits for seconds waits for less."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import TypeAlias

import pytest

from agent.claims import prepare_claim
from agent.node import Node, Run, node_for_test
from gpu.fake import FakeGPUs
from partita.agent import main, report_pace, served_gpu
from partita.agent.dra import plugin as dra_plugin
from partita.agent.dra import prepare
from partita.agent.gpu import health as gpu_health
from partita.agent.gpu import nvml_threads as threads_module
from partita.agent.gpu import setup as gpu_setup
from partita.agent.gpu.xid import XidAction
from partita.agent.mps import daemon
from partita.agent.mps import health as mps_health
from partita.agent.usage import sampling
from support.api import Api
from support.clusters import ApiServer
from support.crds import install_crds

Allocate: TypeAlias = Callable[[Node, str, int], Awaitable[Run]]

_INSTALLED: set[str] = set()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--terminations",
        type=int,
        default=12,
        help="Number of jobs that are ended at random; only with this folder as argument.",
    )


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for seconds waits for less."""
    monkeypatch.setattr(served_gpu, "CHECK_EVERY", 0.5)
    monkeypatch.setattr(main, "REPORT_EVERY", 0.05)
    monkeypatch.setattr(main, "SETUP_RETRY", 0.1)
    monkeypatch.setattr(report_pace, "NUMBERS_EVERY", (0.1, 0.2))
    monkeypatch.setattr(report_pace, "DECISIVE_EVERY", 0.05)
    monkeypatch.setattr(dra_plugin, "_POLL", 0.05)
    monkeypatch.setattr(dra_plugin, "_RETRY", 0.05)
    monkeypatch.setattr(dra_plugin, "PREPARE_WITHIN", 1.0)
    monkeypatch.setattr(prepare, "UPDATE_EVERY", 0.1)
    monkeypatch.setattr(prepare, "_RETRY", 0.1)
    monkeypatch.setattr(daemon, "_POLL", 0.05)
    monkeypatch.setattr(daemon, "_FIRST_PAUSE", 0.05)
    monkeypatch.setattr(daemon, "_END_DEADLINE", 1.0)
    monkeypatch.setattr(sampling, "_AFTER_ERROR", 0.1)
    monkeypatch.setattr(threads_module, "_EVENT_WAIT", 50)
    monkeypatch.setattr(gpu_setup, "_LOCK_TRIES", 3)
    monkeypatch.setattr(mps_health, "RESTART_AFTER", 1.0)
    monkeypatch.setattr(mps_health, "FAULT_SHOWN_FOR", 1.0)
    monkeypatch.setattr(gpu_health, "QUIET_SECONDS", {XidAction.UNKNOWN: 0.5, XidAction.RESET: 1.0})


@pytest.fixture
async def node(
    api: Api, api_server: ApiServer, namespace: str, fake_gpus: FakeGPUs
) -> AsyncIterator[Node]:
    if api_server.url not in _INSTALLED:
        await install_crds(api)
        _INSTALLED.add(api_server.url)
    body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    await api.post(f"/api/v1/namespaces/{namespace}/serviceaccounts", body)
    async with node_for_test(api, api_server, namespace, fake_gpus) as made:
        yield made


@pytest.fixture(params=["job", "claim"])
def allocate(request: pytest.FixtureRequest) -> Allocate:
    """Allocate so many MiB to a Pod with this name, of a job or with a claim."""
    return partial(prepare_claim, job=request.param == "job")


def new_driver(node: Node) -> None:
    """Install a driver with MPS protocol 3."""
    node.gpus.install_driver("615.71.09")
