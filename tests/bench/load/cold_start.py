"""From a cold start of the operator to the first Pod of a long queue."""

from __future__ import annotations

import os
import subprocess
import sys

from bench.load.figures import Figure
from bench.load.stage import Key, Stage, Tell, job_for, on_stage, partition_of
from bench.scale.meters import usage
from bench.scale.partitions import PARTITIONS_PATH

__all__ = ["cold_start"]

GPUS = 4
MOST_SECONDS = 10.0
"""Issue 7."""
MOST_MEMORY = 300.0
"""MB; issue 7."""


def cold_start(jobs: int, tell: Tell) -> list[Figure]:
    """Start the operator twice where this many jobs wait: as the first ever, and once more.

    The first start finds a partition without GPUs, and jobs that nobody has looked at. Before the
    second all jobs that wait have been told why, and one that ran has ended while nobody was there.
    """
    _compile()
    keys = [("crowd", f"job-{n}") for n in range(jobs)]

    async def play(stage: Stage) -> list[Figure]:
        await stage.api.post(PARTITIONS_PATH, partition_of("shared", gpus=GPUS))
        await stage.submit("jobs created", (job_for("shared", key) for key in keys))
        tell("the operator starts, for the first time")
        pid = stage.operator.begin()
        first = await _first_pod(stage, "first start", pid, known=0)
        await stage.all_told(keys)
        told = max(at for _, at in stage.reasons.values()) - stage.operator.launched
        used = usage(pid)
        stage.operator.end()
        await stage.end_oldest()
        tell("the operator starts again")
        known = len(stage.pods)
        pid = stage.operator.begin()
        again = await _first_pod(stage, "another start", pid, known)
        return [
            *first,
            Figure("first start: all have been told why they wait", told, "s"),
            Figure("first start: CPU of the operator until all are told", used.cpu, "s"),
            Figure("first start: peak memory", used.peak, "MB", MOST_MEMORY),
            *again,
            Figure("another start: peak memory", usage(pid).peak, "MB", MOST_MEMORY),
        ]

    return on_stage(play, gpus=GPUS, namespaces=["crowd"], tell=tell)


def _compile() -> None:
    """Have Python keep the operator compiled, as its image does (`tools/bytecode.py`)."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", "import partita.operator.main"]
    subprocess.run(command, env=environment, check=True)


async def _first_pod(stage: Stage, name: str, pid: int, known: int) -> list[Figure]:
    """Wait for the first Pod that is not known yet; return how long what took."""
    await stage.until("first Pod", lambda: len(stage.pods), known + 1)
    used = usage(pid)
    pods: list[tuple[Key, float]] = list(stage.pods.items())
    figures = [
        Figure(f"{name}: {what}", at - stage.operator.launched, "s")
        for what, event in (("all read", "listed"), ("it decides", "ready"))
        if (at := stage.operator.said(event)) is not None
    ]
    seconds = pods[known][1] - stage.operator.launched
    return [
        *figures,
        Figure(f"{name}: first Pod created", seconds, "s", MOST_SECONDS),
        Figure(f"{name}: CPU of the operator until then", used.cpu, "s"),
        Figure(f"{name}: peak memory until then", used.peak, "MB"),
    ]
