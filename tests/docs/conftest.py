"""The clusters on which the commands of pages run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest_asyncio

from partita_testcluster.cli.local_cluster import sandbox
from partita_testcluster.nodes import NodeSpec

__all__ = ["new_cluster", "runbook_cluster"]

SPEED = 20.0
"""Simulated seconds in a second."""
MACHINES = [NodeSpec(f"sim-{i}", 2, 24 << 30, "NVIDIA A10", 72) for i in range(2)]
"""The machines of `partita demo`."""


@asynccontextmanager
async def new_cluster(folder: Path) -> AsyncIterator[Path]:
    """Start a cluster with the real operator and simulated nodes; yield its kubeconfig."""
    async with sandbox(folder, MACHINES, speed=SPEED) as box:
        yield box.kubeconfig
        box.check()


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def runbook_cluster(tmp_path_factory) -> AsyncIterator[Path]:
    """One cluster for all runbooks, which mostly read."""
    async with new_cluster(tmp_path_factory.mktemp("cluster")) as kubeconfig:
        yield kubeconfig
