"""Hypothesis strategies for what a scheduler sees: jobs, allocated GPUs, snapshots, proposals.

Amounts come in few sizes, so that jobs often just fit, just do not, or want the same place.
What is allocated on a GPU always keeps the GPU's limits; what is proposed keeps nothing.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from hypothesis import strategies as st

from partita_policies import (
    GPU,
    CoRun,
    Job,
    Node,
    Objective,
    Placement,
    Profile,
    RunningJob,
    Sharing,
    Snapshot,
    Step,
)

__all__ = [
    "GIB",
    "gpus",
    "jobs",
    "placements",
    "profiles",
    "queues",
    "running",
    "snapshots",
    "within_hosts",
    "within_limits",
]

GIB = 2**30
CAPACITIES = tuple(gib * GIB for gib in (8, 16, 37, 74))

_memory = st.integers(0, 160).map(lambda quarters: quarters * GIB // 4)
_seconds = st.none() | st.integers(1, 7200).map(float)
_percent = st.integers(0, 100).map(float)
_steps = st.builds(
    Step, gpu=_percent, memory=_memory, core=_percent, pcie=st.sampled_from([0.0, 9e9])
)

# Few draws a job keep the examples many: what goes together is drawn together.
_SHAPES = (
    *[{}] * 6,
    {"slots": 2},
    {"slots": 3, "clients": 3},
    {"clients": 20},
    {"alone": True},
    {"alone": True, "gpus": 2},
    {"gpus": 2},
    {"gpus": 3, "clients": 30},
    {"cpu": 3000},
    {"cpu": 1000, "host_memory": 5 * GIB},
    {"gpus": 2, "host_memory": 9 * GIB},
    {"host_storage": 5 * GIB},
    {"nodes": frozenset({"node-0"})},
    {"nodes": frozenset({"node-1", "node-2"}), "cpu": 2000},
    {"nodes": frozenset({"node-1"}), "gpus": 2},
    {"memory_limit": 80 * GIB},
    {"memory_limit": 41 * GIB, "reclaimed": True},
    {"products": ("NVIDIA A100-SXM4-40GB",)},
    {"products": ("NVIDIA T4", "NVIDIA V100")},
)


def profiles(application: str = "app") -> st.SearchStrategy[Profile]:
    """What an application used in the past, of no step to three."""
    steps = st.lists(_steps, max_size=3).map(tuple)
    seen = st.builds(CoRun, st.sampled_from(["app", "b"]), st.floats(0.5, 2), st.floats(0, 9))
    return st.builds(
        Profile,
        st.just(application),
        st.just(600.0),
        steps,
        co_runs=st.lists(seen, max_size=1).map(tuple),
    )


_profiles = st.none() | profiles()


@cache  # A strategy is costly to make, and one is drawn from for every example.
def jobs(job_id: str) -> st.SearchStrategy[Job]:
    """One waiting job; mostly plain, sometimes alone, on several GPUs or of several processes."""
    return st.builds(
        lambda shape, **fields: Job(job_id, job_id, **fields, **shape),
        st.sampled_from(_SHAPES),
        namespace=st.sampled_from(["red", "green", "blue"]),
        memory=_memory,
        application=st.sampled_from(["app-a", "app-b"]),
        thread_percent=st.sampled_from([0, 25, 100]),
        priority=st.sampled_from([0, 0, 0, -1, 5]),
        duration=_seconds,
        profile=_profiles,
    )


@st.composite
def queues(draw: st.DrawFn, *, max_jobs: int = 8) -> tuple[Job, ...]:
    """Waiting jobs in queue order: by priority, and some of them alike but for their id."""
    drawn: list[Job] = []
    for index in range(draw(st.integers(0, max_jobs))):
        job_id = f"job-{index}"
        twin = draw(st.sampled_from([None, *drawn]))
        drawn.append(replace(twin, id=job_id, name=job_id) if twin else draw(jobs(job_id)))
    return tuple(sorted(drawn, key=lambda job: -job.priority))


@cache
def running(job_id: str) -> st.SearchStrategy[RunningJob]:
    """One holder of a part of a GPU."""
    shapes = [
        *({}, {}, {"slots": 2}, {"clients": 20}, {"alone": True}, {"priority": -2}),
        *({"lasting": True}, {"lasting": True, "cpu": 1000}, {"lasting": True, "alone": True}),
        {"cpu": 2000, "host_memory": GIB},
        {"host_storage": 2 * GIB},
    ]
    return st.builds(
        lambda shape, **fields: RunningJob(
            job_id, namespace="red", started=1_700_000_000.0 - 30, **fields, **shape
        ),
        st.sampled_from(shapes),
        memory=_memory,
        thread_percent=st.sampled_from([10, 50, 100]),
        duration=_seconds,
        profile=_profiles,
    )


def within_limits(gpu: GPU, held: Sequence[RunningJob | Job]) -> bool:
    """Whether the holders of a GPU keep its limits; counted apart from `FreeCapacity`."""
    if any(holder.alone for holder in held):
        memory = held[0].memory if len(held) == 1 else gpu.memory + 1
    else:
        memory = sum(holder.memory for holder in held)
    return (
        memory <= gpu.memory
        and sum(holder.slots for holder in held) <= gpu.max_jobs
        and sum(holder.clients for holder in held) <= gpu.max_clients
    )


@st.composite
def gpus(draw: st.DrawFn, gpu_id: str, *, nodes: int = 3) -> GPU:
    """One GPU, with what is allocated on it within its limits."""
    gpu = GPU(
        id=gpu_id,
        node=f"node-{draw(st.integers(0, nodes - 1))}",
        memory=draw(st.sampled_from(CAPACITIES)),
        max_jobs=draw(st.integers(1, 7)),
        max_clients=draw(st.sampled_from([48, 16])),
        product=draw(st.sampled_from(["NVIDIA A100-SXM4-40GB"] * 3 + ["NVIDIA T4"])),
        sm_count=108,
        pcie_bandwidth=draw(st.sampled_from([0, 32_000_000_000])),
    )
    held: list[RunningJob] = []
    for index in range(draw(st.integers(0, 3))):
        running_job = draw(running(f"{gpu_id}-holder-{index}"))
        if within_limits(gpu, [*held, running_job]):
            held.append(running_job)
    return replace(gpu, running=tuple(held))


def _told_apart(drawn: list[GPU]) -> tuple[GPU, ...]:
    return tuple(
        replace(
            gpu,
            id=f"gpu-{n}",
            running=tuple(replace(one, job=f"{one.job}-{n}") for one in gpu.running),
        )
        for n, gpu in enumerate(drawn)
    )


several_gpus = st.lists(gpus("gpu"), min_size=1, max_size=3).map(_told_apart)
"""One to three GPUs of other names, with other jobs on each."""


_hosts = st.lists(
    st.builds(
        Node,
        id=st.sampled_from(["node-0", "node-1"]),
        cpu=st.sampled_from([0, 3000, 5000, 64000]),
        memory=st.sampled_from([GIB, 9 * GIB, 64 * GIB]),
        storage=st.sampled_from([GIB, 6 * GIB, 64 * GIB]),
    ),
    max_size=2,
    unique_by=lambda node: node.id,
).map(tuple)


def within_hosts(snapshot: Snapshot, placements: Sequence[Placement]) -> bool:
    """Whether jobs run on nodes they may use, which give no more than they have; counted apart."""
    jobs, where = {job.id: job for job in snapshot.jobs}, {g.id: g.node for g in snapshot.gpus}
    for placement in placements:
        nodes = {where[gpu] for gpu in placement.gpus}
        if jobs[placement.job].nodes and not nodes <= jobs[placement.job].nodes:
            return False
    for node in snapshot.nodes:
        held = {b.job: b for g in snapshot.gpus if g.node == node.id for b in g.running}
        new = [jobs[p.job] for p in placements if where[p.gpus[0]] == node.id]
        for asked, has in (
            ("cpu", node.cpu),
            ("host_memory", node.memory),
            ("host_storage", node.storage),
        ):
            left = has - sum(getattr(holder, asked) for holder in held.values())
            wanted = [getattr(job, asked) for job in new]
            if any(wanted) and sum(wanted) > left:
                return False
    return True


@st.composite
def snapshots(draw: st.DrawFn, *, max_jobs: int = 8) -> Snapshot:
    """One partition at one moment."""
    drawn = [draw(gpus(f"gpu-{index}")) for index in range(draw(st.integers(0, 4)))]
    return Snapshot(
        partition="research",
        time=1_700_000_000.0,
        jobs=draw(queues(max_jobs=max_jobs)),
        gpus=tuple(drawn),
        sharing=draw(st.sampled_from(Sharing)),
        nodes=draw(_hosts),
        objective=draw(st.sampled_from(Objective)),
    )


def placements(snapshot: Snapshot, *, max_size: int = 6) -> st.SearchStrategy[list[Placement]]:
    """What any policy, also one gone mad, may propose for a snapshot."""
    job_ids = st.sampled_from([*(job.id for job in snapshot.jobs), "no-such-job"])
    gpu_ids = st.sampled_from([*(gpu.id for gpu in snapshot.gpus), "no-such-gpu"])
    one = st.builds(Placement, job=job_ids, gpus=st.lists(gpu_ids, max_size=3).map(tuple))
    return st.lists(one, max_size=max_size)
