"""Faults on request."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import pytest

from partita_testcluster.nodes.api import ApiError
from partita_testcluster.nodes.faults import Fault, inject, parse_faults


def test_all_forms_are_read() -> None:
    assert parse_faults(
        "mps@30s:a-0; node-gone@1m+30s:sim-0 ;gpu-lost@1m:b.c;random:2,seed=7;"
    ) == [
        Fault("mps", "a-0", 30.0),
        Fault("node-gone", "sim-0", 60.0, 30.0),
        Fault("gpu-lost", "b.c", 60.0),
        Fault("random", "7", 30.0),
    ]
    assert parse_faults("random:0.5") == [Fault("random", "0", 120.0)]
    assert parse_faults("") == []


@pytest.mark.parametrize(
    "text", ["mps", "mps@30s", "mps@soon:a", "mps@1s+1s:a", "fire@1s:a", "random:", "random:x"]
)
def test_other_texts_are_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(ValueError, match="write"):
        parse_faults(text)


class Nodes:
    """An API server that notes what is written, and a clock; it ends what sleeps too often."""

    def __init__(self) -> None:
        self.happened: list[tuple[Any, ...]] = []
        self.refuses = False

    async def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> None:
        what = (body or {}).get("metadata", {})
        what = what.get("annotations") or what.get("name")
        self.happened.append((method, path.rsplit("/", 1)[1], what))
        if self.refuses:
            raise ApiError(404, {"reason": "NotFound"})

    async def sleep(self, seconds: float) -> None:
        self.happened.append(("sleep", seconds))
        if len(self.happened) > 100 or seconds < 0:
            raise asyncio.CancelledError
        await asyncio.sleep(0)


async def happening(text: str, servers: Collection[str] = (), *, refuses: bool = False) -> list:
    nodes = Nodes()
    nodes.refuses = refuses
    for fault in parse_faults(text):
        task = asyncio.create_task(inject(fault, nodes, nodes, servers))
        await asyncio.wait({task})
        assert task.cancelled() or task.exception() is None
    return nodes.happened


@pytest.mark.parametrize("refuses", [False, True])
async def test_faults_happen_to_their_targets(*, refuses: bool) -> None:
    happened = await happening(
        "xid@1s:a-0;node-gone@2s+1s:sim-0;node-gone@3s:sim-1;random:0", refuses=refuses
    )
    assert happened == [
        ("sleep", 1.0),
        ("PATCH", "a-0", {"sim.partita.dev/fault": "xid"}),
        ("sleep", 2.0),
        ("DELETE", "sim-0", None),
        ("sleep", 1.0),
        ("POST", "nodes", "sim-0"),
        ("sleep", 3.0),
        ("DELETE", "sim-1", None),
    ]


async def test_random_faults_are_the_same_for_the_same_seed() -> None:
    first = await happening("random:6,seed=1", ["a-0", "b-0"])
    assert len(first) == 101
    assert {what[1] for what in first if what[0] == "PATCH"} == {"a-0", "b-0"}
    assert await happening("random:6,seed=1", ["b-0", "a-0"]) == first
    assert await happening("random:6,seed=2", ["a-0", "b-0"]) != first
    assert {what[0] for what in await happening("random:6,seed=1")} == {"sleep"}
