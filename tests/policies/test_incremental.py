"""What policies keep between decisions changes no decision, whatever happened before."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf, nan

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from partita_policies import GPU, Choice, Job, Placement, Snapshot, create
from partita_policies.incremental import CapacityCache, Interned, Memo
from partita_policies.running_jobs import running_job
from support.strategies import GIB, snapshots

POLICIES: dict[str, tuple[str, dict[str, JsonValue]]] = {
    "fifo": ("fifo", {}),
    "sjf": ("sjf", {}),
    "sjf exclusive": ("sjf", {"exclusive": True}),
    "tetris": ("tetris", {}),
    "fgd": ("fgd", {}),
    "least-harm": ("least-harm", {}),
    "deeprm-max": ("deeprm-max", {}),
    "deeprm-mean": ("deeprm-mean", {}),
    "dqn": ("dqn", {"work": 0}),
}


def after(
    snapshot: Snapshot, answer: Sequence[Placement], others: Sequence[Job], data: st.DataObject
) -> Snapshot:
    """Return a later snapshot: jobs have started, ended, come and gone, and GPUs have changed."""
    where = {placement.job: placement.gpus for placement in answer}
    jobs = {job.id: job for job in snapshot.jobs}
    time = snapshot.time + data.draw(st.sampled_from([0.0, 30.0, 600.0]))

    def later(gpu: GPU) -> GPU:
        new = [running_job(jobs[name], time) for name, ids in where.items() if gpu.id in ids]
        match data.draw(st.sampled_from([*["nothing"] * 4, "ends", "copied", "shrinks"])):
            case "ends":
                return replace(gpu, running=(*gpu.running[1:], *new))
            case "copied":
                return replace(gpu, running=(*gpu.running, *new))
            case "shrinks":
                fewer = max(1, gpu.max_jobs - 1)
                return replace(gpu, memory=gpu.memory // 2, max_jobs=fewer)
            case _:
                return replace(gpu, running=(*gpu.running, *new)) if new else gpu

    waiting = [job for job in snapshot.jobs if job.id not in where]
    waiting += [replace(job, id=f"{job.id}-{time}") for job in others]
    if data.draw(st.booleans()):
        waiting = waiting[1:]
    gpus = tuple(later(gpu) for gpu in snapshot.gpus)
    return replace(snapshot, jobs=tuple(waiting), gpus=gpus, time=time)


@settings(max_examples=20)
@given(snapshots(), snapshots(), st.data())
def test_a_decision_is_that_of_a_policy_that_has_seen_nothing_else(
    snapshot: Snapshot, other: Snapshot, data: st.DataObject
) -> None:
    kept = {name: create(*variant) for name, variant in POLICIES.items()}
    driver = data.draw(st.sampled_from([*POLICIES]))
    for step in range(2):
        note(step)
        answers = {name: create(*variant).decide(snapshot) for name, variant in POLICIES.items()}
        assert {name: policy.decide(snapshot) for name, policy in kept.items()} == answers
        if data.draw(st.booleans()):
            spoilt = (*snapshot.jobs, Job("spoilt", "spoilt", "team", GIB, duration=nan))
            for policy in kept.values():
                with suppress(ValueError):
                    policy.decide(replace(snapshot, jobs=spoilt))
        snapshot = after(snapshot, answers[driver], other.jobs, data)


@pytest.mark.parametrize("duration", [nan, inf])
def test_dqn_simulates_no_job_that_would_not_end(duration: float) -> None:
    first = Job("first", "first", "team", GIB, priority=5)
    endless = Job("endless", "endless", "team", GIB, duration=duration)
    gpu = GPU("gpu-0", "node-0", 8 * GIB, 4)
    with pytest.raises(ValueError, match="no number to plan with"):
        create("dqn").decide(Snapshot("shared", 0.0, (first, endless), (gpu,)))


def memo_of_names() -> tuple[Memo[Job, str], list[str]]:
    """Return a memo of the names of jobs, and the ids of those for which it was computed."""
    asked: list[str] = []

    def name(job: Job) -> str:
        asked.append(job.id)
        return job.name

    return Memo(name), asked


def test_a_value_is_computed_once_for_each_object_that_stays() -> None:
    memo, asked = memo_of_names()
    jobs = [Job(one, f"job {one}", "team", GIB) for one in "abc"]
    other = Job("d", "job d", "team", GIB)
    for many in (jobs, [other, *jobs, jobs[0]], [], jobs):
        memo.begin()
        assert memo.of(jobs[1]) == "job b"
        assert memo.of_all(many) == [job.name for job in many]
    assert asked == ["b", "a", "c", "d", "a", "c"]


def test_objects_with_equal_keys_share_a_value_until_none_of_them_is_used():
    computed: list[str] = []

    class Size:
        def __init__(self, job: Job) -> None:
            computed.append(job.id)

    sizes = Interned[Job, Size](key=lambda job: job.memory, compute=Size)
    small, alike, large = (
        Job(name, name, "team", gib * GIB) for name, gib in zip("abc", (1, 1, 2), strict=True)
    )
    sizes.begin()
    assert sizes.of(small) is sizes.of(alike) is not sizes.of(large)
    sizes.begin()
    assert sizes.of(alike) is sizes.of(replace(small, id="d"))
    assert computed == ["a", "c"]
    for _ in range(2):  # the last decision's values are still there in the next one
        sizes.begin()
    sizes.of(small)
    assert computed == ["a", "c", "a"]


def spoil(cache: CapacityCache, snapshot: Snapshot) -> None:
    """Place jobs as a decision does, which then raises an error."""
    with cache.of(snapshot) as capacity:
        for job in snapshot.jobs:
            capacity.place(job, Choice.FIRST)
        raise ZeroDivisionError


@given(snapshots())
def test_a_decision_that_raised_or_hangs_leaves_nothing_behind(snapshot: Snapshot) -> None:
    cache = CapacityCache()
    with pytest.raises(ZeroDivisionError):
        spoil(cache, snapshot)
    with cache.of(snapshot) as hanging, cache.of(snapshot) as fresh:
        assert hanging is not fresh
        assert all(fresh.holds(b.job) for gpu in snapshot.gpus for b in gpu.running)
        assert not any(fresh.holds(job.id) for job in snapshot.jobs)
    with cache.of(snapshot) as again:
        assert again in (hanging, fresh)
