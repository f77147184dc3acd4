"""How soon a job that can never start is told so, where thousands wait."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from typing import Any

from bench.load.figures import Figure, of_samples
from bench.load.stage import Key, Stage, Tell, job_for, on_stage, partition_of
from bench.scale.partitions import jobs_path, make_partitions
from partita.reconcile.reasons import Reason

__all__ = ["never_fits"]

Json = dict[str, Any]

GPUS = 4
SAMPLES = 20
EVERY = 0.5
"""Seconds between a sample and the next."""
TURNOVER = 0.25
"""Seconds between two jobs that end, so that others start, in the second half."""
MOST_SECONDS = 1.0
"""Issue 7; KAI needs 249.5 s."""

_KINDS: dict[str, tuple[str, dict[str, Any], Reason]] = {
    "more memory than any GPU has": ("shared", {"gpuMemory": "100Gi"}, Reason.NEVER_FITS),
    "more GPUs than a node has": ("whole", {"gpus": 16}, Reason.NEVER_FITS),
    "a partition that is not there": ("nowhere", {}, Reason.PARTITION_NOT_FOUND),
}


def never_fits(jobs: int, tell: Tell) -> list[Figure]:
    """Submit jobs that can never start beside this many that wait.

    Once while nothing else happens, and once while jobs end and others start, so that the queue
    is gone through all the time.
    """

    async def play(stage: Stage) -> list[Figure]:
        await stage.start_operator()
        whole = partition_of("whole", gpus=2, sharing={"mode": "Exclusive"})
        await make_partitions(stage.api, [partition_of("shared", gpus=GPUS), whole])
        keys = [("crowd", f"job-{n}") for n in range(jobs)]
        await stage.submit("jobs created", (job_for("shared", key) for key in keys))
        await stage.all_told(keys)
        numbers = itertools.count()
        figures = await _samples(stage, "nothing else happens", numbers.__next__)
        turnover = stage.beside(_turn_over(stage))
        figures += await _samples(stage, "four jobs a second start", numbers.__next__)
        turnover.cancel()
        return figures

    return on_stage(play, gpus=GPUS + 2, namespaces=["crowd", "late"], tell=tell)


async def _samples(stage: Stage, when: str, number: Callable[[], int]) -> list[Figure]:
    figures = []
    for name, (partition, spec, reason) in _KINDS.items():
        samples = []
        for _ in range(SAMPLES):
            key = "late", f"never-{number()}"
            samples.append(await _seconds(stage, key, job_for(partition, key, **spec), reason))
            await asyncio.sleep(EVERY)
        stage.tell(f"{when}, {name}: {max(samples):.2f} s at most")
        figures += of_samples(f"{when}: {name}", samples, "s", MOST_SECONDS)
    return figures


async def _seconds(stage: Stage, key: Key, job: Json, reason: Reason) -> float:
    """Submit a job, and return how long it took until its status had a reason."""
    began = time.time()
    await stage.api.post(jobs_path(key[0]), job)
    await stage.until(f"told {reason}", lambda: stage.reasons.get(key, ("", 0.0))[0] == reason)
    return stage.reasons[key][1] - began


async def _turn_over(stage: Stage) -> None:
    while True:
        await asyncio.sleep(TURNOVER)
        if stage.running:
            await stage.end_oldest()
