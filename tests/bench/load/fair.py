"""How soon another namespace's first job starts where one has submitted thousands."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

from bench.load.figures import Figure, of_samples
from bench.load.stage import Key, Stage, Tell, job_for, on_stage, partition_of
from bench.scale.partitions import PARTITIONS_PATH, jobs_path, make_namespace, make_partitions
from bench.scale.shape import JobClass
from partita.constants import GROUP, VERSION

__all__ = ["fair"]

Json = dict[str, Any]

GPUS = 4
SAMPLES = 20
RIVALS = 40
"""Jobs of the namespace whose share is measured."""
WEIGHT = 3
"""Of the namespace that has submitted thousands, against 1 of each other."""
CROWD = JobClass("job", units=5, seconds=2, priority=0, count=0, every=0)
"""Sixteen at a time on four GPUs: eight a second."""
MOST_CYCLES = 1
"""Issue 7."""
_SERVERS = f"/apis/{GROUP}/{VERSION}/gpuservers"


class _Ledger:
    """All allocations there were, by the cycle that made them."""

    def __init__(self) -> None:
        self.allocated: dict[Key, float] = {}
        """By job, when its cycle decided: the same for all that a cycle allocates."""

    def see(self, _: str, server: Json) -> None:
        """Take a GPUServer as it is now."""
        for running_job in ((server.get("status") or {}).get("allocations") or {}).values():
            key = running_job["namespace"], running_job["name"]
            self.allocated.setdefault(key, _time(running_job["since"]))


def fair(jobs: int, tell: Tell) -> list[Figure]:
    """Have one namespace submit this many jobs, then others one each.

    A cycle that is under way when a job comes cannot take it any more: it counts as the one cycle
    of delay. All jobs are of one size, so each cycle that allocates any had room for the newcomer's.
    """

    async def play(stage: Stage) -> list[Figure]:
        ledger = _Ledger()
        await stage.start_operator()
        await make_partitions(stage.api, [partition_of("shared", gpus=GPUS)])
        stage.beside(stage.api.watch(_SERVERS, ledger.see))
        keys = [("crowd", f"job-{n}") for n in range(jobs)]
        await stage.submit("jobs created", (job_for("shared", key, CROWD) for key in keys))
        figures = await _newcomers(stage, ledger, "newcomer", "equal weights")
        quotas = [{"namespace": "crowd", "weight": WEIGHT}]
        await stage.api.patch(f"{PARTITIONS_PATH}/shared", {"spec": {"quotas": quotas}})
        figures += await _newcomers(stage, ledger, "other", f"the crowd has weight {WEIGHT}")
        share = await _share(stage, ledger)
        expected = f"1 of {WEIGHT + 1}"
        name = f"part of the allocations of a namespace that has {expected} weights"
        return [*figures, Figure(name, 100 * share, "%")]

    return on_stage(play, gpus=GPUS, namespaces=["crowd", "rival"], tell=tell)


async def _newcomers(stage: Stage, ledger: _Ledger, name: str, how: str) -> list[Figure]:
    """Submit one job from each of several new namespaces, one after the other."""
    cycles, allocated, waits, seconds = [], [], [], []
    for number in range(SAMPLES):
        key = (f"{name}-{number}", "first")
        await make_namespace(stage.api, key[0])
        began = time.time()
        before = await _newcomer(stage, ledger, key)
        cycles.append(len(set(before)))
        allocated.append(len(before))
        waits.append(ledger.allocated[key] - began)
        seconds.append(stage.pods[key] - began)
        stage.tell(
            f"{how}: {cycles[-1]} cycles before, {waits[-1]:.2f} s to the cycle that allocates it, "
            f"{seconds[-1]:.2f} s to the Pod"
        )
    return [
        *of_samples(f"{how}: cycles that allocated others", cycles, "", MOST_CYCLES),
        *of_samples(f"{how}: others allocated meanwhile", allocated, ""),
        *of_samples(f"{how}: submission to its cycle", waits, "s"),
        *of_samples(f"{how}: submission to Pod", seconds, "s"),
    ]


async def _newcomer(stage: Stage, ledger: _Ledger, key: Key) -> list[float]:
    """Submit a job and wait for its Pod; return when others were allocated before it."""
    await stage.api.post(jobs_path(key[0]), job_for("shared", key, CROWD))
    arrived = time.time()
    await stage.until(f"{key[0]} runs", lambda: key in stage.pods and key in ledger.allocated)
    return [at for at in ledger.allocated.values() if arrived < at < ledger.allocated[key]]


async def _share(stage: Stage, ledger: _Ledger) -> float:
    """Return the part that one namespace has in the allocations while both have jobs that wait."""
    keys = [("rival", f"job-{n}") for n in range(RIVALS)]
    began = time.time()
    await stage.submit("a rival's jobs created", (job_for("shared", key, CROWD) for key in keys))
    await stage.until(
        "a rival's jobs allocated", lambda: sum(key in ledger.allocated for key in keys), RIVALS
    )
    last = max(ledger.allocated[key] for key in keys)
    return RIVALS / sum(began < at <= last for at in ledger.allocated.values())


def _time(written: str) -> float:
    return datetime.fromisoformat(written).timestamp()
