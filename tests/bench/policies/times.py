"""How long a decision takes: over queued jobs, one GPU and a thousand, and mixes of jobs.

What is told of a size is its worst mix. A decision is timed as it is made in the operator: in
one thread, with the garbage collector set as there, after another one with nearly the same jobs.
Times are CPU times, because other programs share the machine.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from time import perf_counter, thread_time
from typing import Any

from bench.harness import quantile
from partita.garbage_collection import collect_rarely
from partita_policies import GPU, Job, Node, Policy, Profile, RunningJob, Snapshot, Step, create

__all__ = ["measure"]

JOBS, GPUS = (64, 1_000, 10_000), (1, 1_000)
GIB = 2**30
_AT_LEAST, _AT_MOST = 100, 200
"""Decisions timed for each mix; the p99 of fewer than 100 is their slowest."""
_SECONDS = 0.5
"""After so long for one mix the fewest decisions will do."""
_REPLACED = 100
"""One in so many jobs is another one in the next decision; an assumption."""

Mix = Callable[[random.Random, int], dict[str, Any]]
"""What job number n is, beside its name."""


def _few_classes(draw: random.Random, _: int) -> dict[str, Any]:
    gib = draw.choice((2, 4, 8, 12, 20))
    return {"memory": gib * GIB, "duration": draw.choice((60.0, 600.0, 3600.0))}


def _small(draw: random.Random, _: int) -> dict[str, Any]:
    memory = draw.randrange(GIB // 4, 2 * GIB)
    return {"memory": memory, "duration": draw.uniform(10.0, 7200.0)}


def _any_size(draw: random.Random, _: int) -> dict[str, Any]:
    memory = draw.randrange(GIB, 40 * GIB)
    return {"memory": memory, "duration": draw.uniform(10.0, 7200.0)}


def _profiled(draw: random.Random, number: int) -> dict[str, Any]:
    shape = _any_size(draw, number)
    steps = tuple(
        Step(draw.uniform(5, 90), shape["memory"], draw.uniform(5, 90), draw.uniform(0, 9e9))
        for _ in range(4)
    )
    name = f"app-{number % 97}"
    profile = Profile(name, shape["duration"], steps)
    return {**shape, "application": name, "profile": profile}


@cache
def _application(number: int) -> dict[str, Any]:
    return _profiled(random.Random(f"application {number}"), number)


def _few_applications(_: random.Random, number: int) -> dict[str, Any]:
    return _application(number % 10)  # jobs of an application share its profile, as in the operator


def _shaped(draw: random.Random, number: int) -> dict[str, Any]:
    processes = 1 + number % 3
    return {
        **_any_size(draw, number),
        "slots": processes,
        "clients": 4 * processes,
        "priority": number % 4 - 1,
    }


def _pairs(draw: random.Random, _: int) -> dict[str, Any]:
    return {"memory": 0, "gpus": 2, "alone": True, "duration": draw.uniform(10.0, 7200.0)}


def _with_cpu(draw: random.Random, number: int) -> dict[str, Any]:
    cpu = 500 * draw.randrange(1, 33)
    return {**_any_size(draw, number), "cpu": cpu, "host_memory": draw.randrange(64) * GIB}


ALLOCATED = "any size, GPUs in use"
HOSTED = "with CPU and memory of nodes"

MIXES: Mapping[str, Mix] = {
    "few classes": _few_classes,
    "small, all different": _small,
    "any size, all different": _any_size,
    "profiled, all different": _profiled,
    "of ten applications": _few_applications,
    "of several processes and priorities": _shaped,
    "alone on two GPUs": _pairs,
    ALLOCATED: _any_size,
    HOSTED: _with_cpu,
}


def _snapshot(mix: str, jobs: int, gpus: int) -> Snapshot:
    """Return a queue of such jobs before GPUs, eight to a node, of which five of six may be used."""
    draw = random.Random(f"{mix} {jobs}")
    waiting: list[Job] = []
    for n in range(jobs):
        job = Job(f"job-{n}", f"job-{n}", f"team-{n % 7}", 0)
        threads = draw.choice((25, 50, 100))
        waiting.append(replace(job, thread_percent=threads, **MIXES[mix](draw, n)))
    servers: list[GPU] = []
    for n in range(gpus):
        held = range(n % 6 if mix == ALLOCATED else 0)
        gpu = GPU(f"gpu-{n}", f"node-{n // 8}", 74 * GIB, 7, pcie_bandwidth=32_000_000_000)
        running = tuple(RunningJob(f"b-{n}-{i}", 13 * GIB) for i in held)
        servers.append(replace(gpu, running=running))
    found = Snapshot("bench", 1_700_000_000.0, tuple(waiting), tuple(servers))
    if mix == HOSTED:
        names = dict.fromkeys(gpu.node for gpu in servers)
        nodes = tuple(Node(name, 96_000, 512 * GIB) for name in names)
        return replace(found, nodes=nodes)
    return found


def measure(policies: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """Time the decisions of policies.

    Returns
    -------
    dict
        For each policy a list of sizes: `policy`, `jobs`, `gpus`, `p99_ms` and `median_ms` of its
        worst mix, `first_ms` of the decision in which it sees all jobs for the first time, and
        that `mix`.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for name in policies:
        policy = create(name)
        found[name] = [
            {"policy": name, "jobs": jobs, "gpus": gpus, **_worst(policy, jobs, gpus)}
            for gpus in GPUS
            for jobs in JOBS
        ]
    return found


def _worst(policy: Policy, jobs: int, gpus: int) -> dict[str, Any]:
    rows = [{**_time(policy, _snapshot(mix, jobs, gpus)), "mix": mix} for mix in MIXES]
    return max(rows, key=lambda row: float(row["p99_ms"]))


def _time(policy: Policy, snapshot: Snapshot) -> dict[str, Any]:
    seconds: list[float] = []

    def decide() -> None:
        start = thread_time()
        policy.decide(snapshot)
        seconds.append(thread_time() - start)

    decide()  # with imports
    first = seconds.pop()
    collect_rarely()
    begin = perf_counter()
    while len(seconds) < _AT_MOST:
        snapshot = _next(snapshot)
        decide()
        if len(seconds) >= _AT_LEAST and perf_counter() - begin > _SECONDS:
            break
    p99, median = quantile(seconds, 0.99), quantile(seconds, 0.5)
    return {"p99_ms": 1e3 * p99, "median_ms": 1e3 * median, "first_ms": 1e3 * first}


def _next(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot of the next cycle: every GPU has been read anew, and jobs were replaced."""
    jobs = list(snapshot.jobs)
    for place in range(int(snapshot.time) % _REPLACED, len(jobs), _REPLACED):
        jobs[place] = replace(jobs[place], id=f"{jobs[place].id}-next")
    gpus = tuple([replace(gpu) for gpu in snapshot.gpus])
    return replace(snapshot, time=snapshot.time + 1, jobs=tuple(jobs), gpus=gpus)
