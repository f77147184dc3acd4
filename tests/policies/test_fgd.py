"""Fragmentation gradient descent, beside a slow calculation by the paper's own definition."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from partita_policies import GPU, FreeCapacity, Job, Node, RunningJob, Snapshot
from partita_policies.fgd import FGD, FGDParameters, TypicalTask
from support.strategies import GIB

PART = GIB // 100
WHOLE = 1000 * PART


def job(name, parts, **fields):
    return Job(name, name, "team", parts * PART, **fields)


def gpu(name, node="n0", held=0, **fields):
    running = (RunningJob(f"on-{name}", held * PART),) if held else ()
    return GPU(name, node, **{"memory": WHOLE, "max_jobs": 99, "running": running, **fields})


def typical(parts, share=1.0, **fields):
    return TypicalTask(share=share, memory=parts * PART, **fields)


def decide(jobs, gpus, nodes=(), **parameters):
    policy = FGD(FGDParameters(**parameters))
    answer = policy.decide(Snapshot("p", 0.0, tuple(jobs), tuple(gpus), nodes=tuple(nodes)))
    return [(placement.job, *placement.gpus) for placement in answer]


def fragments(frees, idle, cpu, tasks):
    """Free parts of a node that a task drawn at random cannot use (the paper, section 3.2)."""
    expected = 0.0
    for task in tasks:
        parts = -(-task.memory // PART)
        wants_idle = task.alone or task.gpus > 1
        usable = [
            free
            for free, empty in zip(frees, idle, strict=True)
            if (empty if wants_idle else free >= parts)
        ]
        runs = len(usable) >= task.gpus and task.cpu <= cpu
        lost = sum(frees) - (sum(usable) if runs else 0)
        expected += task.share * lost
    return expected / sum(task.share for task in tasks)


def slow_growth(wanted, place, snapshot, tasks):
    """By how much the fragments of a GPU's node grow when a job gets the GPU."""
    here = [one for one in snapshot.gpus if one.node == place.node]
    free = [(one.memory - sum(b.memory for b in one.running)) // PART for one in here]
    idle = [not one.running for one in here]
    cpu = next((node.cpu for node in snapshot.nodes if node.id == place.node), 10**12)
    before = fragments(free, idle, cpu, tasks)
    at = here.index(place)
    free[at] -= free[at] if wanted.alone else wanted.memory // PART
    idle[at] = False
    return fragments(free, idle, cpu - wanted.cpu, tasks) - before


tasks_strategy = st.lists(
    st.one_of(
        st.builds(
            typical,
            st.sampled_from([50, 250, 500, 700, 1000]),
            st.sampled_from([1.0, 2.0, 0.5]),
            cpu=st.sampled_from([0, 2000, 6000]),
        ),
        st.builds(
            typical, st.just(1000), gpus=st.sampled_from([1, 2, 3]), alone=st.just(value=True)
        ),
    ),
    min_size=1,
    max_size=5,
)
gpus_strategy = st.lists(
    st.tuples(
        st.sampled_from(["n0", "n1"]),
        st.sampled_from([0, 0, 300, 450]),
        st.sampled_from([500, 1000]),
    ),
    min_size=1,
    max_size=6,
)


@given(
    tasks=tasks_strategy,
    places=gpus_strategy,
    size=st.sampled_from([100, 250, 500, 1000]),
    cpu=st.sampled_from([0, 1000, 4000]),
    hosts=st.booleans(),
    alone=st.booleans(),
)
def test_a_job_goes_where_fragments_grow_least_by_the_papers_definition(
    tasks, places, size, cpu, hosts, alone
):
    gpus = tuple(
        gpu(f"g{n}", node, held, memory=parts * PART)
        for n, (node, held, parts) in enumerate(places)
    )
    nodes = (Node("n0", 8000, GIB), Node("n1", 5000, GIB)) if hosts else ()
    wanted = job("a", size, cpu=cpu, alone=alone)
    snapshot = Snapshot("p", 0.0, (wanted,), gpus, nodes=nodes)
    answer = FGD(FGDParameters(typical=tuple(tasks))).decide(snapshot)
    capacity = FreeCapacity(gpus, nodes)
    fitting = [one for one in gpus if capacity.why_not(wanted, one.id) is None]
    if not fitting:
        assert answer == []
        return
    if not hosts:
        tasks = [task.model_copy(update={"cpu": 0}) for task in tasks]
    growth = {one.id: slow_growth(wanted, one, snapshot, tasks) for one in fitting}
    (placement,) = answer
    # A part of free memory weighs a millionth where the growth is equal.
    assert growth[placement.gpus[0]] <= min(growth.values()) + 1e-6 * 1000


def test_a_job_alone_leaves_the_smaller_fragment_of_two_that_no_task_can_use():
    gpus = [gpu("small", memory=WHOLE // 2), gpu("large")]
    pairs = [typical(1000, gpus=2, alone=True)]
    assert decide([job("a", 100, alone=True)], gpus, typical=pairs) == [("a", "large")]


def test_where_growth_is_equal_the_tightest_gpu_wins_then_the_first():
    gpus = [gpu("roomy", held=100), gpu("tight", held=500), gpu("as-tight", held=500)]
    assert decide([job("a", 100)], gpus, typical=[typical(1000)]) == [("a", "tight")]


def test_a_job_with_many_cpus_goes_where_they_leave_no_gpu_behind():
    gpus = [gpu("a", "poor"), gpu("b", "rich")]
    nodes = [Node("poor", 6000, GIB), Node("rich", 64000, GIB)]
    hungry = [typical(500, cpu=4000)]
    wanted = job("a", 100, cpu=4000)
    assert decide([wanted], gpus, nodes, typical=hungry) == [("a", "b")]


def test_a_job_without_gpu_memory_goes_where_most_cpu_is_left_for_each_free_gpu():
    gpus = [gpu("a", "poor"), gpu("b", "rich")]
    nodes = [Node("poor", 32000, GIB), Node("rich", 64000, GIB)]
    small = [typical(100, cpu=1000)]
    assert decide([job("a", 0, cpu=4000)], gpus, nodes, typical=small) == [("a", "b")]


def test_several_gpus_are_those_of_the_node_that_they_break_up_least():
    gpus = [*(gpu(f"a{n}", "a") for n in range(4)), *(gpu(f"b{n}", "b") for n in range(2))]
    fours = [typical(1000, gpus=4), typical(1000)]
    pair = job("pair", 1000, gpus=2)
    assert decide([pair], gpus, typical=fours) == [("pair", "b0", "b1")]
    assert decide([replace(pair, gpus=5)], gpus, typical=fours) == []


def test_the_target_is_what_waits_and_runs_unless_it_is_given():
    gpus = [gpu("idle"), gpu("half", held=500)]
    quarter = job("quarter", 250)
    others = [job(f"large-{n}", 500, products=("none",)) for n in range(9)]
    assert decide([quarter, *others], gpus) == [("quarter", "idle")]
    assert decide([quarter, *others], gpus, typical=[typical(1000)]) == [("quarter", "half")]


@pytest.mark.parametrize("given", [{"share": 0, "memory": 1}, {"share": 1}, {"memory": -1}])
def test_a_target_that_makes_no_sense_is_refused(given):
    with pytest.raises(ValidationError):
        FGDParameters(typical=[given])
