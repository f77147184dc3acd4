"""What each policy does, and what all of them hold on any snapshot."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, note

from partita_policies import (
    GPU,
    FreeCapacity,
    Job,
    Node,
    Objective,
    Profile,
    RunningJob,
    Snapshot,
    Step,
    complaints_about,
    create,
    load_snapshot,
)
from support.polling import TIMEOUT
from support.strategies import GIB, snapshots, within_hosts, within_limits

VARIANTS = {
    "fifo": ("fifo", {}),
    "fifo without backfill": ("fifo", {"backfill": False}),
    "sjf": ("sjf", {}),
    "sjf exclusive": ("sjf", {"exclusive": True}),
    "fgd": ("fgd", {}),
    "least-harm": ("least-harm", {}),
    "tetris": ("tetris", {}),
    "tetris packing only": ("tetris", {"remaining_work": 0}),
    "tetris by utilisation": ("tetris", {"resources": "measured"}),
    "tetris by peaks": ("tetris", {"usage": "peak", "window": 2}),
}
GOLDEN = Path(__file__).parent / "golden"

every_policy = pytest.mark.parametrize("variant", VARIANTS)


def job(name, gib=2, **fields):
    return Job(**{"id": name, "name": name, "namespace": "n", "memory": int(gib * GIB), **fields})


def gpu(name="g0", **fields):
    return GPU(**{"id": name, "node": "n0", "memory": 10 * GIB, "max_jobs": 4, **fields})


def decide(variant, jobs, gpus):
    name, parameters = VARIANTS[variant]
    answer = create(name, parameters).decide(Snapshot("p", 0.0, tuple(jobs), tuple(gpus)))
    return [(placement.job, *placement.gpus) for placement in answer]


@given(snapshots())
def test_every_answer_keeps_every_limit_and_is_the_same_again(snapshot):
    waiting = {one.id: one for one in snapshot.jobs}
    for variant in VARIANTS:
        note(variant)
        answer = create_cached(variant).decide(snapshot)
        assert list(complaints_about(snapshot, answer)) == []
        assert len({placement.job for placement in answer}) == len(answer)
        for one in snapshot.gpus:
            new = [waiting[placement.job] for placement in answer if one.id in placement.gpus]
            assert within_limits(one, [*one.running, *new])
            assert all(not wanted.products or one.product in wanted.products for wanted in new)
        assert within_hosts(snapshot, answer)
        assert create_cached(variant).decide(snapshot) == answer


_policies = {}


def create_cached(variant):
    """Build a policy once: looking up entry points takes longer than deciding."""
    if variant not in _policies:
        _policies[variant] = create(*VARIANTS[variant])
    return _policies[variant]


@given(snapshots())
def test_nobody_is_left_waiting_who_would_still_fit(snapshot):
    for variant in ("fifo", "sjf", "fgd"):
        capacity = FreeCapacity(snapshot.gpus, snapshot.nodes)
        waiting = {one.id: one for one in snapshot.jobs}
        for placement in create_cached(variant).decide(snapshot):
            capacity.take(waiting.pop(placement.job), placement.gpus)
        assert [one.id for one in waiting.values() if capacity.first_fit(one)] == []


@every_policy
@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.json")), ids=lambda path: path.stem)
def test_a_recorded_snapshot_gets_the_answer_on_file(variant, path):
    golden = json.loads(path.read_text())
    answer = create(*VARIANTS[variant]).decide(load_snapshot(golden["snapshot"]))
    assert {one.job: list(one.gpus) for one in answer} == golden["answers"][variant]


@every_policy
def test_a_job_too_large_for_any_gpu_blocks_nobody(variant):
    assert decide(variant, [job("large", 99), job("wide", 1, gpus=3), job("a")], [gpu()]) == [
        ("a", "g0")
    ]


@every_policy
def test_a_higher_priority_comes_first(variant):
    jobs = [job("first", 8, duration=1.0), job("urgent", 8, duration=900.0, priority=1)]
    assert decide(variant, jobs[::-1], [gpu()]) == [("urgent", "g0")]


@every_policy
def test_a_job_on_two_gpus_gets_both_on_one_node(variant):
    gpus = [gpu("a0", node="a"), gpu("b0", node="b"), gpu("b1", node="b")]
    assert decide(variant, [job("pair", gpus=2, alone=True)], gpus) == [("pair", "b0", "b1")]
    beside_alone = gpu("c1", node="c", running=(RunningJob("b", GIB, alone=True),))
    assert decide(variant, [job("pair", 0, gpus=2)], [gpu("c0", node="c"), beside_alone]) == []


@pytest.mark.parametrize("variant", ["fifo", "sjf", "tetris"])
def test_jobs_spread_over_gpus_that_are_all_idle(variant):
    gpus = [gpu(f"g{n}") for n in range(4)]
    jobs = [job(f"j{n}", 1, duration=1.0) for n in range(6)]
    answer = decide(variant, jobs, gpus)
    assert sorted(where for _, where in answer) == ["g0", "g0", "g1", "g1", "g2", "g3"]


@pytest.mark.parametrize("variant", ["fifo", "sjf"])
@pytest.mark.parametrize(
    ("objective", "queue", "where"),
    [
        (Objective.PACKING, (), "g1"),
        (Objective.BALANCED, (), "g0"),
        (Objective.BALANCED, (job("large", 99), job("as-large", 99)), "g1"),
        (Objective.BALANCED, (job("b", 12),), "g1"),
        (Objective.BALANCED, (job("b", 0, alone=True), job("c", 0, alone=True)), "g1"),
        (Objective.COMPLETION, (job("large", 99), job("as-large", 99)), "g0"),
    ],
)
def test_a_partition_that_packs_gets_a_job_where_the_least_memory_is_left(
    variant, objective, queue, where
):
    held = gpu("g1", running=(RunningJob("b", 4 * GIB),))
    taken = gpu("g2", running=(RunningJob("whole", 0, alone=True),))
    jobs = (job("a", 5, duration=1.0), *queue)
    snapshot = Snapshot("p", 0.0, jobs, (gpu("g0"), held, taken), objective=objective)
    answer = create_cached(variant).decide(snapshot)
    assert next((one.job, *one.gpus) for one in answer) == ("a", where)


def test_fifo_without_backfill_waits_for_the_first_of_the_queue():
    jobs = [job("a", 6), job("b", 6), job("c", 4)]
    assert decide("fifo without backfill", jobs, [gpu()]) == [("a", "g0")]


def test_sjf_gives_each_job_a_gpu_to_itself_when_told_to():
    jobs = [
        job("unknown", 1),
        job("long", 1, duration=90.0),
        job("short", 1, duration=10.0),
        job("middle", 1, duration=50.0),
        job("as-short", 1, duration=10.0),
    ]
    taken = gpu("g1", running=(RunningJob("b", GIB),))
    gpus = [gpu("g0"), taken, *map(gpu, ("g2", "g3", "g4", "g5"))]
    assert decide("sjf exclusive", jobs, gpus) == [
        ("short", "g0"),
        ("as-short", "g2"),
        ("middle", "g3"),
        ("long", "g4"),
        ("unknown", "g5"),
    ]
    assert decide("sjf exclusive", jobs, [taken]) == []


def profiled(name, gib, *steps, **fields):
    rows = tuple(Step(percent, GIB) for percent in steps)
    return job(name, gib, profile=Profile(name, 60.0, rows), **fields)


def beside(objective, gpus, *jobs, **parameters):
    """Return where jobs start that have run for no time beside others."""
    snapshot = Snapshot("p", 0.0, jobs, gpus, objective=objective)
    answer = create("least-harm", parameters).decide(snapshot)
    return {one.job: one.gpus[0] for one in answer}


def held_by(name, gib, seconds, percent):
    profile = Profile(name, seconds, (Step(percent, GIB),))
    running = RunningJob(name, gib * GIB, profile=profile, started=0.0)
    return gpu(f"of-{name}", running=(running,))


def test_least_harm_waits_for_a_short_end_rather_than_slow_down_both():
    busy, idle = held_by("busy", 2, 5.0, 95), held_by("light", 6, 500.0, 1)
    assert beside(Objective.COMPLETION, (busy,), profiled("a", 1, 95)) == {}
    assert beside(Objective.MAKESPAN, (busy,), profiled("a", 1, 95)) == {"a": "of-busy"}
    assert beside(Objective.COMPLETION, (busy, idle), profiled("a", 1, 95)) == {"a": "of-light"}
    assert beside(Objective.COMPLETION, (busy, idle), job("unknown", 1)) == {"unknown": "of-busy"}


def test_least_harm_packs_under_balanced_as_long_as_nobody_becomes_slow():
    roomy, full, busy = gpu("idle"), held_by("light", 6, 500.0, 1), held_by("busy", 7, 500.0, 95)
    asked = profiled("a", 2, 95)
    assert beside(Objective.BALANCED, (roomy, full, busy), asked) == {"a": "of-light"}
    assert beside(Objective.BALANCED, (busy,), asked, slowdown_budget=1.2) == {}
    service = replace(busy, running=(replace(busy.running[0], lasting=True),))
    assert beside(Objective.BALANCED, (service,), asked, slowdown_budget=1.2) == {"a": "of-busy"}


def test_least_harm_starts_the_longest_first_for_the_makespan_and_else_the_shortest():
    jobs = [job("short", 8, duration=1.0), job("long", 8, duration=900.0)]
    assert beside(Objective.MAKESPAN, (gpu(),), *jobs) == {"long": "g0"}
    assert beside(Objective.COMPLETION, (gpu(),), *jobs) == {"short": "g0"}


def test_tetris_gives_a_gpu_the_job_that_aligns_best_with_what_is_free():
    # Memory 4 of 10 GiB is left and all of the SMs: the busy job aligns better.
    busy, roomy = profiled("busy", 1, 90), profiled("roomy", 4, 10)
    held = gpu(max_jobs=2, running=(RunningJob("b", 6 * GIB),))
    assert decide("tetris packing only", [roomy, busy], [held]) == [("busy", "g0")]
    # The other way round with the SMs nearly used up: only the roomy one fits.
    worn = replace(held.running[0], profile=Profile("w", 60.0, (Step(80, GIB),)))
    assert decide("tetris packing only", [busy, roomy], [replace(held, running=(worn,))]) == [
        ("roomy", "g0")
    ]


def test_tetris_lets_busy_jobs_share_whose_kernels_leave_sms_idle_unless_it_counts_utilisation():
    few_threads = Profile("a", 60.0, (Step(90, GIB, core=15),))
    jobs = [job(name, 1, profile=few_threads) for name in "ab"]
    assert len(decide("tetris", jobs, [gpu()])) == 2
    assert len(decide("tetris by utilisation", jobs, [gpu()])) == 1


def test_tetris_prefers_the_larger_job_for_an_idle_gpu_unless_the_smaller_is_far_shorter():
    jobs = [job("small", 4, duration=10.0), job("large", 8, duration=1000.0)]
    assert decide("tetris packing only", jobs, [gpu()])[0] == ("large", "g0")
    assert decide("tetris", jobs, [gpu()])[0] == ("small", "g0")


def test_tetris_counts_the_mean_of_a_profile_or_its_peak():
    jobs = [profiled("a", 1, 20, 80), profiled("b", 1, 20, 80)]
    assert len(decide("tetris", jobs, [gpu()])) == 2
    assert len(decide("tetris by peaks", jobs, [gpu()])) == 1


def test_tetris_never_refuses_an_idle_gpu_for_what_a_profile_says():
    heavy = job("heavy", profile=Profile("h", 60.0, (Step(100, GIB, 100, 99e9),)))
    assert decide("tetris", [heavy], [gpu(pcie_bandwidth=10**9)]) == [("heavy", "g0")]


def test_tetris_keeps_apart_what_together_exceeds_the_pcie_bandwidth():
    rows = (Step(1, GIB, 1, 6e9),)
    jobs = [job(name, 1, profile=Profile("copy", 60.0, rows)) for name in "ab"]
    pair = [gpu("g0", pcie_bandwidth=10**10), gpu("g1", pcie_bandwidth=10**10)]
    assert decide("tetris", jobs, pair) == [("a", "g0"), ("b", "g1")]


def test_tetris_looks_past_any_number_of_kinds_that_do_not_fit():
    jobs = [job(f"pair-{i}", 1 + i % 9, gpus=2, duration=float(i)) for i in range(40)]
    assert decide("tetris", [*jobs, job("single")], [gpu()]) == [("single", "g0")]
    heavy = [profiled(f"heavy-{i}", 1 + i / 16, 90) for i in range(40)]
    busy = RunningJob("b", GIB, profile=Profile("b", 60.0, (Step(50, GIB),)))
    jobs = (*heavy, profiled("light", 1, 20))
    assert decide("tetris", jobs, [gpu(running=(busy,))]) == [("light", "g0")]
    assert create("tetris", {"window": 2**32}).decide(Snapshot("p", 0.0, jobs, (gpu(),)))


@pytest.mark.parametrize("variant", ["fifo", "sjf", "tetris"])
def test_a_job_that_holds_a_gpu_already_is_left_out(variant):
    held = gpu(running=(RunningJob("a", GIB),))
    assert decide(variant, [job("a"), job("b")], [held]) == [("b", "g0")]


def test_tetris_looks_past_kinds_for_which_the_node_has_too_little_cpu():
    jobs = [job(f"hungry-{n}", cpu=4000, duration=1.0 + n) for n in range(20)]
    nodes = (Node("n0", 3000, GIB),)
    snapshot = Snapshot("p", 0.0, (*jobs, job("modest", cpu=3000)), (gpu(),), nodes=nodes)
    answer = create_cached("tetris").decide(snapshot)
    assert [placement.job for placement in answer] == ["modest"]


def test_the_heuristics_run_where_the_native_library_cannot_be_loaded():
    program = """
from pathlib import Path
from partita_policies import check_policy, load, native
native.LIBRARY = Path("/missing.so")
for name in ("fifo", "sjf", "fgd"):
    check_policy(load(name), seconds=90)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=TIMEOUT)
