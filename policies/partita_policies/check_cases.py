"""The test cases of `check_policy`: one small snapshot for each."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from partita_policies.types import (
    GPU,
    CoRun,
    Job,
    Node,
    Objective,
    Profile,
    RunningJob,
    Sharing,
    Snapshot,
    Step,
)

__all__ = ["cases", "crowd", "one_small_job"]

GIB = 2**30

_PROFILE = Profile(
    "training",
    600.0,
    tuple(Step(40.0 + i, (2 + i) * GIB, 30.0, 1e9) for i in range(4)),
    runs=3,
    co_runs=(CoRun("training", 1.4, 3.5),),
)


def one_small_job() -> Snapshot:
    """Return one job and an idle GPU that it fits."""
    return _snapshot([_job("small", 4)], [_gpu("gpu-0")])


def cases() -> Mapping[str, Snapshot]:
    """Return the snapshots by a name that describes the case."""
    gpus = [_gpu(f"gpu-{i}", node=f"node-{i // 2}") for i in range(4)]
    jobs = [_job(f"job-{i}", 3 + 5 * i, duration=100.0 * i or None) for i in range(6)]
    profiled = _job("profiled", 6, application="training", profile=_PROFILE)
    full = _gpu("full", running=tuple(_running_job(f"b-{i}", 9) for i in range(4)))
    held = _gpu("held", running=(_running_job("hermit", 0, alone=True),))
    crowded = _gpu("crowded", max_jobs=1, running=(_running_job("b", 1),))
    clients = _gpu("clients", running=(_running_job("b", 1, clients=48),))
    pairs = [_job(f"pair-{i}", 10, gpus=2, alone=True) for i in range(3)]
    impossible = [
        _job("too-large", 400),
        _job("too-many-gpus", 1, gpus=64),
        _job("too-many-slots", 1, slots=64),
        _job("too-many-clients", 1, clients=640),
    ]
    return MappingProxyType(
        {
            "nothing at all": _snapshot([], []),
            "no jobs": _snapshot([], gpus),
            "no GPUs": _snapshot(jobs, []),
            "idle GPUs": _snapshot([*jobs, profiled], gpus),
            **{
                f"objective {objective}": replace(crowd(20, 4), objective=objective)
                for objective in Objective
            },
            "full GPUs": _snapshot(jobs, [full, held, crowded, clients]),
            "little room": _snapshot([*jobs, profiled], [full, held, crowded, clients, gpus[0]]),
            "impossible jobs before one that fits": _snapshot([*impossible, jobs[0]], gpus),
            "jobs that must be alone": _snapshot(
                [_job("hermit-0", 0, alone=True), *jobs, _job("hermit-1", 8, alone=True)],
                [full, *gpus[:2]],
            ),
            "jobs on several GPUs": _snapshot(
                [*pairs, _job("triple", 1, gpus=3), *jobs[:1]], gpus, Sharing.EXCLUSIVE
            ),
            "two GPUs on different nodes": _snapshot(pairs[:1], [gpus[0], gpus[2]]),
            "jobs of several slots and processes": _snapshot(
                [_job(f"wide-{i}", 1, slots=3, clients=20) for i in range(4)], gpus[:2]
            ),
            "priorities": _snapshot(
                [_job("high", 20, priority=9), *jobs, _job("low", 1, priority=-9)], gpus[:1]
            ),
            "equal jobs": _snapshot([_job(f"same-{i}", 5) for i in range(40)], gpus),
            "nodes with little CPU and memory": replace(
                _snapshot([replace(job, cpu=4000, host_memory=8 * GIB) for job in jobs], gpus),
                nodes=(Node("node-0", 9000, 64 * GIB), Node("node-1", 64000, 9 * GIB)),
            ),
            "nodes with little ephemeral storage": replace(
                _snapshot([replace(job, host_storage=6 * GIB) for job in jobs], gpus),
                nodes=(Node("node-0", 0, 0, 7 * GIB), Node("node-1", 0, 0, 13 * GIB)),
            ),
            "jobs for some nodes alone": _snapshot(
                [
                    replace(job, nodes=frozenset({f"node-{2 * (i % 2)}", "node-1"}))
                    for i, job in enumerate(jobs)
                ],
                gpus,
            ),
            "jobs for some products alone": _snapshot(
                [replace(job, products=("A", "C")) for job in jobs],
                [replace(gpu, product="AB"[i % 2]) for i, gpu in enumerate(gpus)],
            ),
            "services on the GPUs": _snapshot(
                [*jobs, profiled, _job("hermit", 4, alone=True)],
                [
                    replace(gpu, running=(_running_job(f"service-{i}", 9 * i, lasting=True),))
                    for i, gpu in enumerate(gpus)
                ],
            ),
            "no memory": _snapshot([_job("none", 0), *jobs], [_gpu("bare", memory=0), gpus[0]]),
        }
    )


def crowd(jobs: int, gpus: int) -> Snapshot:
    """Return a long queue of different jobs and GPUs of which half are in use; deterministic."""
    return _snapshot(
        [
            _job(
                f"job-{i}",
                1 + i * 7919 % 37,
                duration=float(60 + i * 104729 % 7200) if i % 5 else None,
                thread_percent=25 * (1 + i % 4),
                profile=_PROFILE if i % 3 else None,
            )
            for i in range(jobs)
        ],
        [
            _gpu(
                f"gpu-{i}",
                node=f"node-{i // 8}",
                running=(_running_job(f"b-{i}", 1 + i * 31 % 30),) if i % 2 else (),
            )
            for i in range(gpus)
        ],
    )


def _snapshot(jobs: list[Job], gpus: list[GPU], sharing: Sharing = Sharing.MPS) -> Snapshot:
    return Snapshot("check", 1_700_000_000.0, tuple(jobs), tuple(gpus), sharing)


def _job(name: str, gib: int, *, duration: float | None = 300.0, **fields: Any) -> Job:
    memory = gib * GIB
    return Job(f"id-of-{name}", name, "team", memory, duration=duration, **fields)


def _gpu(name: str, *, node: str = "node-0", **fields: Any) -> GPU:
    return GPU(name, node, **{"memory": 37 * GIB, "max_jobs": 7, **fields})


def _running_job(name: str, gib: int, **fields: Any) -> RunningJob:
    return RunningJob(f"id-of-{name}", gib * GIB, started=-30.0, **fields)
