"""Faults on request."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from partita.embedded.nodes.faults import FaultAt, RandomFaults, inject_faults, parse_faults


def test_all_forms_are_read() -> None:
    assert parse_faults(
        "mps@30s:a-0; node-gone@1m+30s:sim-0 ;gpu-lost@1m:b.c;random:2,seed=7;"
    ) == [
        FaultAt("mps", "a-0", 30.0),
        FaultAt("node-gone", "sim-0", 60.0, 30.0),
        FaultAt("gpu-lost", "b.c", 60.0),
        RandomFaults(2.0, 7),
    ]
    assert parse_faults("random:0.5") == [RandomFaults(0.5)]
    assert parse_faults("") == []


@pytest.mark.parametrize(
    "text", ["mps", "mps@30s", "mps@soon:a", "mps@1s+1s:a", "fire@1s:a", "random:", "random:x"]
)
def test_other_texts_are_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(ValueError, match="write"):
        parse_faults(text)


class Nodes:
    """Records what happens to it, on a clock of its own."""

    def __init__(self, *servers: str) -> None:
        self.happened: list[tuple[str, ...]] = []
        self._servers = servers
        self._sleeps = 0

    def servers(self) -> Sequence[str]:
        return self._servers

    def gpu_fault(self, kind: str, server: str) -> None:
        self.happened.append((kind, server))

    async def node_gone(self, node: str) -> None:
        self.happened.append(("gone", node))

    async def node_back(self, node: str) -> None:
        self.happened.append(("back", node))

    async def sleep(self, seconds: float) -> None:
        self._sleeps += 1
        if self._sleeps > 50 or seconds < 0:
            raise asyncio.CancelledError
        await asyncio.sleep(0)


async def test_faults_happen_to_their_targets() -> None:
    nodes = Nodes()
    plan = parse_faults("xid@1s:a-0;node-gone@2s+1s:sim-0;node-gone@3s:sim-1;random:0")
    await inject_faults(plan, nodes)
    assert nodes.happened == [
        ("xid", "a-0"),
        ("gone", "sim-0"),
        ("gone", "sim-1"),
        ("back", "sim-0"),
    ]


async def random_faults(seed: int, *servers: str) -> list[tuple[str, ...]]:
    nodes = Nodes(*servers)
    await inject_faults([RandomFaults(6.0, seed)], nodes)
    return nodes.happened


async def test_random_faults_are_the_same_for_the_same_seed() -> None:
    first = await random_faults(1, "a-0", "b-0")
    assert len(first) == 50
    assert {server for _, server in first} == {"a-0", "b-0"}
    assert await random_faults(1, "b-0", "a-0") == first
    assert await random_faults(2, "a-0", "b-0") != first
    assert await random_faults(1) == []
