"""How long a decision takes: over queued jobs, one GPU and a thousand, and mixes of jobs.

    python -m bench.policies_times fifo tetris

What is told of a size is its worst mix. A decision is timed as it is made in the operator: in
one thread, with the garbage collector set as there, after another one with nearly the same jobs.
Times are CPU times, because other programs share the machine.
"""

import argparse
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from time import perf_counter, thread_time
from typing import Any

from partita.garbage_collection import collect_rarely
from partita_policies import GPU, Job, Node, Policy, Profile, RunningJob, Snapshot, Step, create

__all__ = ["HEURISTICS", "JOBS", "MIXES", "measure", "snapshot_of", "table"]

HEURISTICS = ("fifo", "sjf", "tetris", "fgd", "deeprm-max", "deeprm-mean")
JOBS = (64, 1_000, 10_000)
GPUS = (1, 1_000)
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


def snapshot_of(mix: str, jobs: int, gpus: int) -> Snapshot:
    """Return a queue of such jobs before GPUs, eight to a node.

    Parameters
    ----------
    mix
        One of `MIXES`. With `ALLOCATED` five of six GPUs hold something; with others they are idle.
    jobs, gpus
        How many.
    """
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


def measure(
    policies: Sequence[str] | Mapping[str, Policy] = HEURISTICS,
    jobs: Sequence[int] = JOBS,
    gpus: Sequence[int] = GPUS,
) -> list[dict[str, Any]]:
    """Time the decisions of policies.

    Parameters
    ----------
    policies
        Names, or policies by a name of their own.
    jobs, gpus
        The sizes; each with each.

    Returns
    -------
    list of dict
        For each policy and size `policy`, `jobs`, `gpus`, `p99_ms` and `median_ms` of its worst
        mix, `first_ms` of the decision in which it sees all jobs for the first time, and that
        `mix`.
    """
    built = policies if isinstance(policies, Mapping) else {name: create(name) for name in policies}
    return [
        {"policy": name, "jobs": count, "gpus": servers, **_worst(policy, count, servers)}
        for servers in gpus
        for count in jobs
        for name, policy in built.items()
    ]


def _worst(policy: Policy, jobs: int, gpus: int) -> dict[str, Any]:
    found = [{**_time(policy, snapshot_of(mix, jobs, gpus)), "mix": mix} for mix in MIXES]
    return max(found, key=lambda row: float(row["p99_ms"]))


def _time(policy: Policy, snapshot: Snapshot) -> dict[str, Any]:
    start = thread_time()
    policy.decide(snapshot)  # with imports
    first = thread_time() - start
    collect_rarely()
    seconds: list[float] = []
    begin = perf_counter()
    while len(seconds) < _AT_MOST:
        snapshot = _next(snapshot)
        start = thread_time()
        policy.decide(snapshot)
        seconds.append(thread_time() - start)
        if len(seconds) >= _AT_LEAST and perf_counter() - begin > _SECONDS:
            break
    seconds.sort()
    rank = -(-99 * len(seconds) // 100) - 1
    median = seconds[len(seconds) // 2]
    return {"p99_ms": 1e3 * seconds[rank], "median_ms": 1e3 * median, "first_ms": 1e3 * first}


def _next(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot of the next cycle: every GPU has been read anew, and jobs were replaced."""
    jobs = list(snapshot.jobs)
    for place in range(int(snapshot.time) % _REPLACED, len(jobs), _REPLACED):
        jobs[place] = replace(jobs[place], id=f"{jobs[place].id}-next")
    gpus = tuple([replace(gpu) for gpu in snapshot.gpus])
    return replace(snapshot, time=snapshot.time + 1, jobs=tuple(jobs), gpus=gpus)


def table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines of a table, and how the time grows from one size to ten times as many."""
    sizes = sorted({(row["gpus"], row["jobs"]) for row in rows})
    p99 = {(row["policy"], row["gpus"], row["jobs"]): row["p99_ms"] for row in rows}
    yield "p99, ms".ljust(12) + "".join(f"{jobs:>8,}x{gpus:<6,}" for gpus, jobs in sizes)
    for name in dict.fromkeys(row["policy"] for row in rows):
        cells = "".join(f"{p99[name, gpus, jobs]:>11.2f}    " for gpus, jobs in sizes)
        yield name.ljust(12) + cells
        for gpus, jobs in sizes:
            if (larger := p99.get((name, gpus, 10 * jobs))) is not None:
                times = larger / p99[name, gpus, jobs]
                yield f"  {jobs:,} to {10 * jobs:,} jobs, {gpus:,} GPUs: {times:.1f} times as long"
    for row in rows:
        if row["jobs"] == max(jobs for _, jobs in sizes):
            yield f"{row['policy']}, {row['gpus']:,} GPUs: worst with jobs {row['mix']}"


def main() -> None:
    """Measure the policies named, by default the heuristics."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("policies", nargs="*", default=list(HEURISTICS))
    for line in table(measure(parser.parse_args().policies)):
        print(line)


if __name__ == "__main__":
    main()
