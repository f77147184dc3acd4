"""The policy of a partition: changed, parametrised, failing, shadowed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from partita_policies.registry import available
from support.history import GROUP_PATH
from support.queues import LONG
from support.system import System

OURS = sorted(available())
"""Without those of the module below."""
MODULE = """
import threading
from partita_policies.types import Parameters

class Hangs:
    parameters = Parameters
    def __init__(self, parameters):
        pass
    def decide(self, snapshot):
        threading.Event().wait(3)
        return []

"""
ENTRY_POINTS = """
[partita.policies]
hangs = third_party:Hangs
"""


@pytest.fixture(autouse=True)
def third_party(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A distribution of somebody else is installed, with a policy that hangs."""
    (tmp_path / "third_party.py").write_text(MODULE)
    info = tmp_path / "third_party-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: third-party\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("third_party", None)


async def test_a_policy_changed_in_yaml_decides_the_next_cycle_without_a_restart(
    system: System,
) -> None:
    async with system.running(1):
        partition = await system.partition(policy={"name": "fifo"})
        blocker = await system.job("blocker", partition, gpuMemory="30Gi", sim=LONG)
        await blocker.runs()
        jobs = [
            await system.job(f"for-{length}", partition, gpuMemory="30Gi", expectedDuration=length)
            for length in ("20m", "5m", "10m")
        ]
        for job in jobs:
            await job.until(lambda s: s.get("queuePosition"))
        await system.change_partition(partition, policy={"name": "sjf"})
        await system.partition_says(partition, lambda s: s["policy"]["active"] == "sjf")
        await blocker.delete()
        for job in jobs:
            await job.succeeds()
        assert system.started() == ["blocker", "for-5m", "for-10m", "for-20m"]


async def test_every_policy_that_comes_with_us_runs_jobs(system: System) -> None:
    async with system.running(1):
        partition = await system.partition()
        for name in OURS:
            await system.change_partition(partition, policy={"name": name})
            jobs = [await system.job(f"{name}-{i}", partition, gpuMemory="12Gi") for i in range(2)]
            for job in jobs:
                await job.succeeds()
            await system.partition_says(  # on a busy machine some may take too long
                partition,
                lambda s, name=name: (
                    s["policy"]["active"] == name
                    and s["policy"]["cycles"] > s["policy"]["fallbacks"]
                ),
            )


async def test_a_policy_that_hangs_in_one_partition_does_not_hold_up_another(
    system: System,
) -> None:
    async with system.running(2):
        slow = await system.partition(name="slow", policy={"name": "hangs"})
        fast = await system.partition(name="fast")
        await system.ready(fast)
        await system.ready(slow)
        held = await system.job("held", slow, gpuMemory="4Gi")
        job = await system.job("free", fast, gpuMemory="4Gi")
        await job.succeeds()
        await held.succeeds()
        path = f"{GROUP_PATH}/gpupartitions/{fast}"
        assert (await system.api.get(path)).body["status"]["policy"]["fallbacks"] == 0
