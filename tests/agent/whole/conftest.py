"""A node with the whole agent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from agent.claims import Driver
from agent.node import Node, serve
from gpu.fake import MIB, FakeGPUs
from partita.agent.errors import MPSError
from partita.agent.mps.control_v3 import MPSControlV3
from partita.agent.mps.namespaces import slot_namespace
from support.api import Api
from support.clusters import ApiServer
from support.crds import install_crds
from support.polling import until

SLOTS = 4
RESTRICTED = {"securityContext": {"runAsNonRoot": True, "allowPrivilegeEscalation": False}}
"""Fields of a container that may use MPS with protocol 3."""
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
    fake_gpus.start_driver()
    fake_gpus.add(0, context=300 * MIB)
    made = Node(api, api_server, namespace, fake_gpus)
    yield made
    await made.close()


@pytest.fixture
def driver(node: Node) -> Driver:
    return Driver(node.kubelet.folder)


async def serve_v3(node: Node) -> None:
    """Serve the GPU with MPS protocol 3."""
    node.gpus.install_driver("615.71.09")
    await serve(node, protocol=3)


async def open_slots_are(node: Node, *slots: int) -> None:
    """Wait until these slots, and no others, have limits of their own."""

    async def same() -> bool:
        with suppress(MPSError, KeyError):  # a daemon that starts lists them one by one
            limits = await MPSControlV3(str(node.pipes), asyncio.Lock()).limits()
            found = {n for n in range(SLOTS) if limits[slot_namespace(n)] != limits["default"]}
            return found == set(slots)
        return False

    await until(same)
