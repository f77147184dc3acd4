"""Jobs that come and go for hours: does the operator grow, or slow down?"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections.abc import Iterable
from dataclasses import asdict
from typing import IO, Any

import aiohttp
from typing_extensions import override

from apiserver.controlplane import ControlPlane
from apiserver.processes import free_port
from bench.load.figures import Figure, LoadError
from bench.load.metered import CYCLES
from bench.load.samples import Sample, figures, read_page
from bench.load.stage import IDLE_SECONDS, Key, Stage, Tell, job_for, on_stage
from bench.scale.meters import usage
from bench.scale.partitions import jobs_path, make_partitions
from bench.scale.shape import CLASSES, PARTITIONS, partition
from partita.constants import COMPONENT_JOB, GROUP, LABEL_COMPONENT, VERSION

__all__ = ["PEAK", "soak"]

Json = dict[str, Any]

PEAK = 40.0
"""Jobs a second that bench-scale sustains with Pods on 2 cores; docs/performance.md."""
TTL_SECONDS = 60
"""Then the operator removes a finished job, and the collector its Pod."""
EVERY = 5.0
"""Seconds between two samples."""
WARM_UP = 1 / 6
"""Of the time: ten minutes of an hour, in which nothing is asked to be flat yet."""
MOST_BEHIND = 300.0
"""Seconds of arrivals that may be in the cluster at a time, of which TTL_SECONDS always are."""
_PODS = f"/api/v1/pods?labelSelector={LABEL_COMPONENT}%3D{COMPONENT_JOB}"
_SERVERS = f"/apis/{GROUP}/{VERSION}/gpuservers"


class _Plane(ControlPlane):
    """With garbage collection, not held back at 20 requests a second: it needs three a Pod."""

    @override
    def controller_flags(self) -> list[str]:
        return [*super().controller_flags(), "--kube-api-qps=500", "--kube-api-burst=500"]


class _Jobs:
    """How far the jobs are, by a watch."""

    def __init__(self) -> None:
        self.present: set[Key] = set()
        self.ended: set[Key] = set()
        self.wrong: list[str] = []

    def see(self, kind: str, body: Json) -> None:
        """Take a job as it is now."""
        key = body["metadata"]["namespace"], body["metadata"]["name"]
        status = body.get("status") or {}
        phase, attempts = status.get("phase"), len(status.get("attempts") or [])
        if phase in {"Succeeded", "Failed"} and key not in self.ended:
            self.ended.add(key)
            if phase == "Failed" or attempts != 1:
                self.wrong.append(f"{'/'.join(key)}: {phase} after {attempts} attempts")
        if kind == "DELETED":
            self.present.discard(key)
        else:
            self.present.add(key)


def soak(minutes: float, peak: float, written: IO[str] | None, tell: Tell) -> list[Figure]:
    """Submit bench-scale's jobs, mixed and at half of a rate, and remove those that have ended.

    Parameters
    ----------
    peak
        Jobs a second, of which half are submitted.
    written
        Where each sample is written at once, one a line.
    """
    names = [f"bench-{n}" for n in range(PARTITIONS)]
    port = free_port()
    rate, seconds = peak / 2, 60 * minutes
    count = round(rate * seconds)

    async def play(stage: Stage) -> list[Figure]:
        pid = await stage.start_operator()
        await make_partitions(stage.api, [partition(name) for name in names])
        jobs, samples = _Jobs(), list[Sample]()
        stage.beside(stage.api.watch(jobs_path(), jobs.see))
        meter = _Meter(stage, jobs, pid, port)
        sampling = stage.beside(_sample(meter, samples, round(MOST_BEHIND * rate), written))
        stage.beside(_arrivals(stage, _mixed(names, count), rate))
        await stage.until("jobs ended", lambda: len(jobs.ended), count)
        sampling.cancel()
        if jobs.wrong:
            few = "; ".join(jobs.wrong[:3])
            raise LoadError(f"{len(jobs.wrong)} jobs did not run once and well: {few}")
        lasted = time.time() - meter.began
        await _all_gone(stage, jobs)
        return [
            Figure("jobs that ran once and well", len(jobs.ended), ""),
            Figure("time", lasted / 60, "min"),
            Figure("jobs a second", len(jobs.ended) / lasted, ""),
            *figures(samples, since=WARM_UP * seconds),
        ]

    return on_stage(
        play,
        gpus=PARTITIONS,
        namespaces=names,
        tell=tell,
        plane_type=_Plane,
        program="bench.load.metered",
        options=lambda: ["--health-port", str(port)],
    )


class _Meter:
    """Takes samples."""

    def __init__(self, stage: Stage, jobs: _Jobs, pid: int, port: int) -> None:
        self.began = time.time()
        self._stage = stage
        self._jobs = jobs
        self._pid = pid
        self._page = f"http://127.0.0.1:{port}/metrics"
        self._api_pid = stage.plane.server("kube-apiserver").pid
        self._etcd = stage.plane.kubeconfig.with_name("etcd") / "member" / "snap" / "db"

    async def sample(self, session: aiohttp.ClientSession) -> Sample:
        """Ask everybody."""
        async with session.get(self._page) as response:
            told = read_page((await response.read()).decode())
        assert self._api_pid is not None
        return Sample(
            time=time.time() - self.began,
            done=len(self._jobs.ended),
            present=len(self._jobs.present),
            waiting=told["partita_queue_jobs"],
            memory=told["process_resident_memory_bytes"] / 1e6,
            cpu=usage(self._pid).cpu,
            cycles=told[f"{CYCLES}_count"],
            cycle_seconds=told[f"{CYCLES}_sum"],
            writes=told["partita_api_writes_total"],
            api_cpu=usage(self._api_pid).cpu,
            etcd=self._etcd.stat().st_size / 1e6,
            load=os.getloadavg()[0],
        )


async def _sample(meter: _Meter, samples: list[Sample], most: int, written: IO[str] | None) -> None:
    """Take samples for ever.

    Raises
    ------
    LoadError
        There are more jobs than that: they come faster than this machine does them.
    """
    async with aiohttp.ClientSession() as session:
        while True:
            await asyncio.sleep(max(0.0, meter.began + len(samples) * EVERY - time.time()))
            samples.append(await meter.sample(session))
            if written is not None:
                written.write(json.dumps(asdict(samples[-1])) + "\n")
                written.flush()
            if samples[-1].present > most:
                raise LoadError(f"{samples[-1]}: jobs come faster than they are done; see --rate")


def _mixed(names: list[str], count: int) -> Iterable[Json]:
    """Yield jobs of bench-scale's classes in its proportions, drawn for any of the partitions."""
    draw = random.Random(0)
    weights = [kind.count for kind in CLASSES]
    for number in range(count):
        (kind,), name = draw.choices(CLASSES, weights), draw.choice(names)
        key = name, f"{kind.name}-{number}"
        yield job_for(name, key, kind, ttlSecondsAfterFinished=TTL_SECONDS)


async def _arrivals(stage: Stage, jobs: Iterable[Json], rate: float) -> None:
    """Submit jobs at their pace, one not waiting for the other's answer."""
    began = time.time()
    for number, body in enumerate(jobs):
        await asyncio.sleep(max(0.0, began + number / rate - time.time()))
        stage.beside(_submit(stage, body))


async def _submit(stage: Stage, body: Json) -> None:
    await stage.api.post(jobs_path(body["metadata"]["namespace"]), body)


async def _all_gone(stage: Stage, jobs: _Jobs) -> None:
    """Wait until no job, Pod or allocation is left.

    Raises
    ------
    LoadError
        Something is.
    """
    await stage.until("jobs gone", lambda: -len(jobs.present), 0)
    pods, allocated = 0, 0
    for _ in range(IDLE_SECONDS):
        pods = len((await stage.api.get(_PODS))["items"])
        servers = (await stage.api.get(_SERVERS))["items"]
        allocated = sum(len((s.get("status") or {}).get("allocations") or {}) for s in servers)
        if not pods and not allocated:
            return
        await asyncio.sleep(1)
    raise LoadError(f"left over: {pods} Pods of jobs, {allocated} allocations")
