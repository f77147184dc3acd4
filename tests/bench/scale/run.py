"""One run: a control plane, the operator, simulated nodes, and the jobs at their pace."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, ExitStack, nullcontext
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from apiserver.build import assets
from apiserver.controlplane import ControlPlane
from apiserver.processes import ServerProcess
from bench.scale.client import Client, client
from bench.scale.meters import Usage, requests_served, usage
from bench.scale.nodes import PODS, Nodes
from bench.scale.partitions import (
    READY_SECONDS,
    PlaneWithoutCollector,
    install,
    jobs_path,
    make_namespace,
    make_partitions,
    operator_command,
)
from bench.scale.shape import PARTITIONS, JobClass, job, least_seconds, partition

__all__ = ["Admission", "Beside", "Result", "run"]

Json = dict[str, Any]
Beside = Callable[[Client, list[str]], AbstractAsyncContextManager[None]]

_IDLE_SECONDS = 60
"""Without any job finishing: then it is given up."""
_COUNTED = (
    *("sharedgpujobs", "pods", "resourceclaims", "gpuservers", "gpupartitions"),
    *("events", "leases"),
)


@dataclass(frozen=True, slots=True)
class Admission:
    """How long jobs of one class waited for their GPU, seconds."""

    jobs: int
    median: float
    p99: float
    most: float


@dataclass(slots=True)
class Result:
    """What one run measured."""

    with_pods: bool
    share: float
    jobs: int = 0
    wall: float = 0.0
    """Seconds from the first submission to the last job that was seen to have succeeded."""
    submitting: float = 0.0
    """Seconds until the last job was submitted."""
    least: float = 0.0
    """Seconds below which arrivals and capacity let nobody be done."""
    admission: dict[str, Admission] = field(default_factory=dict)
    used: dict[str, Usage] = field(default_factory=dict)
    """Since the first submission; the peak of memory since the start."""
    writes: dict[str, float] = field(default_factory=dict)
    """The operator's writes a job, by verb and resource."""
    reads: float = 0.0
    """The operator's reads a job, lists and watches included."""

    @property
    def rate(self) -> float:
        """Jobs per second."""
        return self.jobs / self.wall

    def dump(self) -> Json:
        """Return it for JSON."""
        return {**asdict(self), "jobs_per_second": self.rate}


def run(
    *,
    classes: tuple[JobClass, ...],
    share: float,
    with_pods: bool,
    profile: Path | None = None,
    tell: Callable[[str], None],
    beside: Beside = lambda _api, _names: nullcontext(),
) -> Result:
    """Run once.

    Parameters
    ----------
    classes
        The jobs of each partition.
    share
        The part of the whole benchmark that they are; for the result.
    profile
        Where cProfile is to write what the operator did; None leaves it unwatched.
    tell
        Told how far it is.
    beside
        What goes on while the jobs are submitted and run, with a client and the partitions'
        names; its own requests are not counted as the operator's.

    Raises
    ------
    RuntimeError
        A job did not come to the end that it should have.
    """
    with ExitStack() as stack:
        tell("starting etcd, kube-apiserver and the operator")
        plane = stack.enter_context(PlaneWithoutCollector(assets()))
        program = ["partita" if with_pods else "bench.scale.without_pods"]
        if profile is not None:
            program = ["cProfile", "-o", str(profile), "-m", *program]

        log = plane.kubeconfig.with_name("operator.log")
        operator = ServerProcess(operator_command(program, plane.kubeconfig), log=log)
        stack.callback(operator.stop, grace=READY_SECONDS)  # a profile is written at its end

        def start() -> int:
            operator.start(lambda: '"ready"' in log.read_text(), seconds=READY_SECONDS)
            assert operator.pid is not None
            return operator.pid

        result = Result(with_pods, share)
        return asyncio.run(_run(plane, start, result, classes, tell, beside))


async def _run(
    plane: ControlPlane,
    start_operator: Callable[[], int],
    result: Result,
    classes: tuple[JobClass, ...],
    tell: Callable[[str], None],
    beside: Beside,
) -> Result:
    async with client(plane.url, plane.token, plane.certificate) as api:
        await install(api)
        names = [f"partition-{n}" for n in range(PARTITIONS)]
        operator = start_operator()  # in this thread: it ends with the one that started it
        etcd, apiserver, *_ = plane.pids
        pids = {"operator": operator, "kube-apiserver": apiserver, "etcd": etcd}
        pids["benchmark"] = os.getpid()
        seen = _Seen()
        async with asyncio.TaskGroup() as group:
            nodes = Nodes(api, len(names), group, seen.job_pod)
            await nodes.create()
            watches = [
                group.create_task(api.watch(PODS, nodes.see)),
                group.create_task(api.watch(jobs_path(), seen.job)),
            ]
            for name in names:
                await make_namespace(api, name)
            await make_partitions(api, map(partition, names))
            before = {who: usage(pid) for who, pid in pids.items()}
            served = requests_served((await api.text("/metrics")).decode())
            own = api.requests.copy()
            async with beside(api, names):
                await _submit(api, names, classes, seen, result, tell)
            result.used = {who: usage(pid).since(before[who]) for who, pid in pids.items()}
            for watch in watches:
                watch.cancel()
            after = requests_served((await api.text("/metrics")).decode())
            _count(result, Counter(after) - Counter(served), api.requests - own)
        seen.check()
        result.least = least_seconds(classes)
        result.admission = seen.admission(classes, with_pods=result.with_pods)
    return result


class _Seen:
    """When each job was submitted, got its GPU, and ended."""

    def __init__(self) -> None:
        self.submitted: dict[tuple[str, str], float] = {}
        self.pods: dict[tuple[str, str], float] = {}
        self.ended: dict[tuple[str, str], Json] = {}
        self.last_end = 0.0
        self.all_ended = asyncio.Event()
        self.expected = 0

    def job_pod(self, namespace: str, name: str) -> None:
        """Take a Pod that was made."""
        self.pods[namespace, name.rpartition("-")[0]] = time.time()

    def job(self, _: str, body: Json) -> None:
        """Take a job as it is now."""
        status = body.get("status") or {}
        if status.get("phase") not in {"Succeeded", "Failed"}:
            return
        key = body["metadata"]["namespace"], body["metadata"]["name"]
        if key not in self.ended:
            self.ended[key] = status
            self.last_end = time.time()
            if len(self.ended) == self.expected:
                self.all_ended.set()

    def check(self) -> None:
        """Raise if any job did not run once, and well."""
        wrong = [
            (key, status.get("reason"), len(status["attempts"]))
            for key, status in self.ended.items()
            if status["phase"] != "Succeeded" or len(status["attempts"]) != 1
        ]
        if wrong:
            raise RuntimeError(f"{len(wrong)} jobs did not run once and well: {wrong[:5]}")

    def admission(self, classes: tuple[JobClass, ...], *, with_pods: bool) -> dict[str, Admission]:
        """Return how long the jobs of each class waited.

        With Pods until the Pod was seen by a watch; without until it was allocated, by the
        operator's clock, which is this machine's.
        """
        result = {}
        for kind in classes:
            mine = [key for key in self.ended if key[1].startswith(kind.name)]
            waits = [
                (self.pods[key] if with_pods else _allocated(self.ended[key])) - self.submitted[key]
                for key in mine
            ]
            p99 = statistics.quantiles(waits, n=100)[98]
            result[kind.name] = Admission(len(waits), statistics.median(waits), p99, max(waits))
        return result


def _allocated(status: Json) -> float:
    return datetime.fromisoformat(status["attempts"][0]["bookedTime"]).timestamp()


async def _submit(
    api: Client,
    names: list[str],
    classes: tuple[JobClass, ...],
    seen: _Seen,
    result: Result,
    tell: Callable[[str], None],
) -> None:
    """Submit all jobs at their pace and wait until all have ended."""
    result.jobs = seen.expected = len(names) * sum(kind.count for kind in classes)
    began = time.time()

    async def submit(name: str, kind: JobClass) -> None:
        for number in range(kind.count):
            await asyncio.sleep(max(0.0, began + number * kind.every - time.time()))
            body = job(f"{kind.name}-{number}", name, kind)
            seen.submitted[name, body["metadata"]["name"]] = time.time()
            await api.post(jobs_path(name), body)

    async def progress() -> None:
        while True:
            await asyncio.sleep(5)
            tell(
                f"{time.time() - began:5.0f} s: {len(seen.submitted)} of {result.jobs} jobs "
                f"submitted, {len(seen.ended)} done"
            )
            if time.time() - max(seen.last_end, began) > _IDLE_SECONDS:
                raise RuntimeError(f"no job has ended for {_IDLE_SECONDS} s")

    telling = asyncio.ensure_future(progress())
    try:
        async with asyncio.TaskGroup() as group:
            for name in names:
                for kind in classes:
                    group.create_task(submit(name, kind))
        result.submitting = max(seen.submitted.values()) - began
        done = asyncio.ensure_future(seen.all_ended.wait())
        await asyncio.wait({done, telling}, return_when=asyncio.FIRST_COMPLETED)
        if telling.done():
            telling.result()
    finally:
        telling.cancel()
    result.wall = seen.last_end - began


def _count(
    result: Result,
    served: Counter[tuple[str, str]],
    own: Counter[tuple[str, str]],
) -> None:
    """Attribute what the API server served and the benchmark did not ask for to the operator."""
    reads = 0
    for (verb, resource), number in sorted(served.items()):
        rest = number - own[verb, resource]
        if resource not in _COUNTED or not rest:
            continue
        if verb in {"GET", "LIST", "WATCH"}:
            reads += rest
        else:
            result.writes[f"{verb} {resource}"] = rest / result.jobs
    result.reads = reads / result.jobs
