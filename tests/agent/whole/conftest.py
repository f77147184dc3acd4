"""A node with the whole agent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.node import Node, node_for_test
from gpu.fake import FakeGPUs
from support.api import Api
from support.clusters import ApiServer
from support.crds import install_crds

_INSTALLED: set[str] = set()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--terminations",
        type=int,
        default=0,
        help="Number of jobs that are ended at random; only with this folder as argument.",
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what ends jobs at random, in real time: `make test-terminations` runs it."""
    ends = config.getoption("--terminations", default=0)
    return True if collection_path.name == "test_terminations.py" and not ends else None


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


def new_driver(node: Node) -> None:
    """Install a driver with MPS protocol 3."""
    node.gpus.install_driver("615.71.09")
