"""The policy of a partition: changed, parametrised, failing, shadowed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from partita_policies.dqn import Network
from partita_policies.dqn.policy import GOALS, KIND, VERSION, WEIGHTS
from partita_policies.registry import available
from support.history import GROUP_PATH
from support.operator import Job, System, condition
from support.queues import LONG

MODULE = """
import threading
from partita_policies.sjf import SJF, SJFParameters
from partita_policies.types import Parameters, Placement

class Base:
    parameters = Parameters
    def __init__(self, parameters):
        pass

class Raises(Base):
    def decide(self, snapshot):
        raise ValueError("no idea")

class Exits(Base):
    def decide(self, snapshot):
        raise SystemExit(3)

class Hangs(Base):
    def decide(self, snapshot):
        threading.Event().wait(3)
        return []

class Overcommits(Base):
    def decide(self, snapshot):
        return [Placement(job.id, (snapshot.gpus[0].id,)) for job in snapshot.jobs]

class Invents(Base):
    def decide(self, snapshot):
        return [Placement("nobody", ("nowhere",))]

class Nonsense(Base):
    def decide(self, snapshot):
        return 42

class Words(Base):
    def decide(self, snapshot):
        return ["start everything"]

class OnePerGPU(SJF):
    def __init__(self, parameters):
        super().__init__(SJFParameters(exclusive=True))

class Waits(Base):
    def decide(self, snapshot):
        return []

class LearnedParameters(Parameters):
    model: str = "shipped.npz"

class Learned(Waits):
    parameters = LearnedParameters
    def __init__(self, parameters):
        open(parameters.model).close()

class Fussy(Waits):
    def __init__(self, parameters):
        raise RuntimeError("the moon is not full")
"""
ENTRY_POINTS = """
[partita.policies]
raises = third_party:Raises
one-per-gpu = third_party:OnePerGPU
exits = third_party:Exits
hangs = third_party:Hangs
overcommits = third_party:Overcommits
invents = third_party:Invents
nonsense = third_party:Nonsense
words = third_party:Words
waits = third_party:Waits
fussy = third_party:Fussy
learned = third_party:Learned
broken = third_party_broken:Policy
"""


@pytest.fixture(autouse=True)
def third_party(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A distribution of somebody else is installed, with policies of all sorts."""
    (tmp_path / "third_party.py").write_text(MODULE)
    (tmp_path / "third_party_broken.py").write_text("import a_module_that_is_not_there\n")
    info = tmp_path / "third_party-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: third-party\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in ("third_party", "third_party_broken"):
        sys.modules.pop(name, None)


async def queue(system: System, partition: str, *durations: str) -> tuple[Job, list[Job]]:
    """Submit a job that fills the GPU, and others behind it."""
    blocker = await system.job("blocker", partition, gpuMemory="30Gi", sim=LONG)
    await blocker.runs()
    jobs = [
        await system.job(f"for-{length}", partition, gpuMemory="30Gi", expectedDuration=length)
        for length in durations
    ]
    for job in jobs:
        await job.until(lambda s: s.get("queuePosition"))
    return blocker, jobs


async def test_a_policy_changed_in_yaml_decides_the_next_cycle_without_a_restart(
    system: System,
) -> None:
    async with system.running(1):
        partition = await system.partition(policy={"name": "fifo"})
        blocker, jobs = await queue(system, partition, "20m", "5m", "10m")
        await system.change_partition(partition, policy={"name": "sjf"})
        await system.partition_says(partition, lambda s: s["policy"]["active"] == "sjf")
        await blocker.delete()
        for job in jobs:
            await job.succeeds()
        assert system.started() == ["blocker", "for-5m", "for-10m", "for-20m"]


@pytest.mark.parametrize("name", sorted(available()))
async def test_every_policy_that_comes_with_us_runs_jobs(system: System, name: str) -> None:
    async with system.running(2):
        partition = await system.partition(gpus=2, policy={"name": name})
        jobs = [await system.job(f"train-{i}", partition, gpuMemory="12Gi") for i in range(6)]
        for job in jobs:
            await job.succeeds()
        assert system.partition_status(partition)["policy"]["fallbacks"] == 0


async def test_a_policy_s_parameters_take_effect_when_they_change(system: System) -> None:
    async with system.running(1):
        policy: dict[str, Any] = {"name": "fifo", "parameters": {"backfill": False}}
        partition = await system.partition(policy=policy)
        first = await system.job("first", partition, gpuMemory="20Gi", sim=LONG)
        await first.runs()
        large = await system.job("large", partition, gpuMemory="30Gi")
        await large.waits("InsufficientMemory")
        small = await system.job("small", partition, gpuMemory="4Gi")
        await small.waits("PolicyWaits", "policy fifo does not start it yet")
        policy["parameters"]["backfill"] = True
        await system.change_partition(partition, policy=policy)
        await small.succeeds()


async def falls_back(system: System, policy: dict[str, Any], *words: str) -> dict[str, Any]:
    """Run jobs under a policy that fails; returns the partition's status."""
    async with system.running(1):
        partition = await system.partition(policy=policy)
        jobs = [await system.job(f"train-{i}", partition, gpuMemory="15Gi") for i in range(3)]
        for job in jobs:
            await job.succeeds()

        def visible(status: dict[str, Any]) -> bool:
            conditions = {c["type"]: c for c in status["conditions"]}
            healthy = conditions.get("PolicyHealthy", {})
            return healthy.get("status") == "False" and all(
                word in healthy["message"] for word in words
            )

        status = await system.partition_says(partition, visible)
        assert condition({"status": status}, "Degraded") == ("True", "PolicyFailed")
        assert status["policy"]["active"] == "fifo"
        assert status["policy"]["fallbacks"] >= 1
        return status


async def test_an_unknown_policy_falls_back_and_says_which_there_are(system: System) -> None:
    await falls_back(system, {"name": "oracle"}, "oracle", "fifo", "sjf", "tetris")


async def test_a_wrong_parameter_is_named_and_falls_back(system: System) -> None:
    policy = {"name": "fifo", "parameters": {"backfil": True}}
    await falls_back(system, policy, "backfil", "backfill: bool = True")


async def test_a_policy_that_raises_falls_back(system: System) -> None:
    await falls_back(system, {"name": "raises"}, "raises", "ValueError: no idea")


async def test_a_policy_that_would_exit_falls_back(system: System) -> None:
    await falls_back(system, {"name": "exits"}, "exits", "SystemExit")


async def test_a_policy_that_overruns_its_time_falls_back(system: System) -> None:
    await falls_back(system, {"name": "hangs"}, "hangs")


async def test_a_policy_that_allocates_too_much_falls_back_and_is_counted(system: System) -> None:
    async with system.running(1):
        partition = await system.partition(policy={"name": "overcommits"})
        first = await system.job("first", partition, gpuMemory="30Gi", sim=LONG)
        await first.runs()
        second = await system.job("second", partition, gpuMemory="30Gi")
        await system.partition_says(
            partition,
            lambda s: (
                s["policy"]["rejected"] >= 1
                and s["policy"]["fallbacks"] >= 1
                and any(
                    c["type"] == "PolicyHealthy"
                    and c["status"] == "False"
                    and "overcommits broke a rule" in c["message"]
                    and "Memory" in c["message"]
                    for c in s["conditions"]
                )
            ),
        )
        await first.delete()
        await second.succeeds()


async def test_a_policy_that_invents_jobs_falls_back(system: System) -> None:
    await falls_back(system, {"name": "invents"}, "there is no job nobody")


@pytest.mark.parametrize("name", ["nonsense", "words"])
async def test_a_policy_that_answers_nonsense_falls_back(system: System, name: str) -> None:
    await falls_back(system, {"name": name}, name)


async def test_a_policy_that_cannot_be_imported_is_named_with_its_reason(system: System) -> None:
    await falls_back(system, {"name": "broken"}, "broken", "a_module_that_is_not_there")


async def test_a_policy_that_cannot_be_built_is_named_with_its_reason(system: System) -> None:
    await falls_back(system, {"name": "fussy"}, "fussy", "the moon is not full")


async def test_a_model_that_is_missing_is_named_by_its_file(system: System) -> None:
    policy = {"name": "learned", "model": "/models/missing.npz"}
    await falls_back(system, policy, "learned", "/models/missing.npz")


def model_file(path: Path, *, kind: str = KIND, weight: float = 0.0) -> Path:
    """Write a model with the same weight everywhere."""
    arrays = {goal.network: np.full(WEIGHTS, weight, np.float32) for goal in GOALS.values()}
    Network(arrays, {"kind": kind, "version": VERSION}).save(path)
    return path


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        ("missing", "No such file"),
        ("empty", "it is no model"),
        ("corrupt", "it is no model"),
        ("another", "it says kind 'another'"),
    ],
)
async def test_a_model_file_that_will_not_do_is_named_and_the_fallback_goes_on(
    system: System, tmp_path: Path, trouble: str, said: str
) -> None:
    path = tmp_path / f"{trouble}.npz"
    if trouble != "missing":
        whole = model_file(path, kind=trouble).read_bytes()
        kept = {"empty": 0, "corrupt": len(whole) // 2, "another": len(whole)}[trouble]
        path.write_bytes(whole[:kept])
    await falls_back(system, {"name": "dqn", "model": str(path)}, f"model file {path}", said)


async def test_a_network_that_answers_nonsense_falls_back_and_says_so(
    system: System, tmp_path: Path
) -> None:
    path = model_file(tmp_path / "nan.npz", weight=float("nan"))
    await falls_back(system, {"name": "dqn", "model": str(path)}, "no finite number")


async def test_a_model_of_one_s_own_decides(system: System, tmp_path: Path) -> None:
    policy = {"name": "dqn", "model": str(model_file(tmp_path / "own.npz"))}
    async with system.running(1):
        partition = await system.partition(policy=policy)
        await (await system.job("train", partition, gpuMemory="4Gi")).succeeds()
        status = await system.partition_says(partition, lambda s: s["policy"]["cycles"] >= 1)
        assert (status["policy"]["active"], status["policy"]["fallbacks"]) == ("dqn", 0)


async def test_a_policy_that_is_repaired_decides_again(system: System) -> None:
    async with system.running(1):
        partition = await system.partition(policy={"name": "raises"})
        job = await system.job("one", partition, gpuMemory="4Gi")
        await job.succeeds()
        await system.partition_says(partition, lambda s: s["policy"]["fallbacks"] >= 1)
        await system.change_partition(partition, policy={"name": "sjf"})
        job = await system.job("two", partition, gpuMemory="4Gi")
        await job.succeeds()
        status = await system.partition_says(partition, lambda s: s["policy"]["active"] == "sjf")
        assert status["policy"]["fallbacks"] == 0
        assert condition({"status": status}, "PolicyHealthy")[0] == "True"


async def test_where_the_fallback_fails_too_fifo_decides_and_it_is_said(system: System) -> None:
    async with system.running(1):
        partition = await system.partition(policy={"name": "raises", "fallback": "exits"})
        job = await system.job("train", partition, gpuMemory="4Gi")
        await job.succeeds()
        await system.partition_says(
            partition,
            lambda s: (
                s["policy"]["active"] == "fifo"
                and any(
                    c["type"] == "PolicyHealthy" and "the fallback too" in c["message"]
                    for c in s["conditions"]
                )
            ),
        )


async def test_shadow_policies_are_counted_and_start_nothing(system: System) -> None:
    async with system.running(1):
        shadow = ["one-per-gpu", "tetris", "waits", "raises"]
        partition = await system.partition(policy={"name": "fifo", "shadow": shadow})
        await system.ready(partition)
        first = await system.job("first", partition, gpuMemory="10Gi", sim=LONG)
        await first.runs()
        second = await system.job("second", partition, gpuMemory="10Gi")
        await second.succeeds()

        def counted(status: dict[str, Any]) -> bool:
            by_name = {entry["name"]: entry for entry in status.get("shadow", [])}
            return (
                by_name.keys() == set(shadow)
                and by_name["tetris"]["agreed"] >= 2
                and by_name["one-per-gpu"]["cycles"] > by_name["one-per-gpu"]["agreed"] >= 1
                and by_name["waits"]["agreed"] == by_name["waits"]["placements"] == 0
                and by_name["raises"]["failures"] >= 2
                and "no idea" in by_name["raises"]["message"]
            )

        await system.partition_says(partition, counted)
        assert system.partition_status(partition)["policy"]["fallbacks"] == 0
        assert system.started() == ["first", "second"]


async def test_a_shadow_that_cannot_be_imported_is_named_and_harms_nobody(
    system: System,
) -> None:
    async with system.running(1):
        partition = await system.partition(policy={"name": "sjf", "shadow": ["broken"]})
        job = await system.job("train", partition, gpuMemory="4Gi")
        await job.succeeds()
        status = await system.partition_says(
            partition,
            lambda s: (
                any("a_module_that_is_not_there" in c["message"] for c in s["conditions"])
                and any("a_module_that_is_not_there" in w.get("message", "") for w in s["shadow"])
            ),
        )
        assert status["policy"]["active"] == "sjf"
        assert status["policy"]["fallbacks"] == 0


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
