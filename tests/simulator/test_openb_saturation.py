import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.policies.saturation import arrivals, saturate
from partita_policies import CapacityError, Placement, create
from partita_research.simulator.openb import TraceNode, TraceTask

GIB = 2**30
NODES = [
    TraceNode("a", 16000, 64 * GIB, 2, "T4"),
    TraceNode("b", 64000, 64 * GIB, 4, "V100"),
]


def task(name, milli, gpus=1, cpu=0, memory=0):
    return TraceTask(name, cpu, memory, gpus, milli)


@given(
    st.lists(
        st.builds(task, st.just("t"), st.sampled_from([50, 300, 1000]), st.just(1)),
        min_size=1,
        max_size=60,
    ),
    st.integers(0, 5),
)
def test_arrivals_ask_for_just_as_much_as_was_wanted(tasks, seed):
    order = arrivals(tasks, NODES, seed, ratio=1.5)
    asked = sum(one.milli_in_all for one in order)
    assert 9000 - 1000 < asked <= 9000
    assert order == arrivals(tasks, NODES, seed, ratio=1.5)
    if sum(one.milli_in_all for one in tasks) <= 9000:
        assert sorted(order[: len(tasks)], key=str) == sorted(tasks, key=str)


@pytest.mark.parametrize("policy", ["fifo", "fgd", "tetris"])
def test_a_cluster_with_cpu_enough_fills_up(policy):
    order = [task(f"t{n}", 500) for n in range(16)]
    found = saturate(create(policy), NODES, order, batch=5)
    assert found.allocated == 100.0
    assert found.left_out == {1: 4}
    assert found.tasks == 16
    assert found.at_capacity == pytest.approx(100 * 10 / 12)


def test_cpu_that_runs_out_leaves_gpus_behind():
    order = [task(f"t{n}", 1000, cpu=16000) for n in range(6)]
    found = saturate(create("fgd"), NODES, order)
    assert found.allocated == pytest.approx(100 * 5 / 6)
    assert found.left_out == {1: 1}


def test_tasks_without_a_gpu_take_cpu_where_most_is_left_for_each_gpu():
    cpu_only = task("cpu", 0, gpus=0, cpu=16000)
    found = saturate(create("fifo"), NODES, [cpu_only] * 6)
    assert found.left_out == {0: 1}
    order = [*[cpu_only] * 3, *(task(f"t{n}", 1000, cpu=8000) for n in range(6))]
    found = saturate(create("fifo"), NODES, order, batch=3)
    # Two go to b and one to either, so that 16 + 16 or 0 + 32 of 80 CPUs are left for GPUs.
    assert found.allocated == pytest.approx(100 * 4 / 6)


def test_several_gpus_are_counted_in_all():
    found = saturate(create("fgd"), NODES, [task("four", 1000, gpus=4)] * 2)
    assert found.allocated == pytest.approx(100 * 4 / 6)
    assert found.left_out == {4: 1}


def test_what_a_policy_leaves_for_later_is_offered_again_at_the_end():
    class OneAtATime:
        def decide(self, snapshot):
            return create("fifo").decide(snapshot)[:1]

    found = saturate(OneAtATime(), NODES, [task(f"t{n}", 1000) for n in range(4)])
    assert found.allocated == pytest.approx(100 * 4 / 6)


def test_a_policy_that_places_what_does_not_fit_is_found_out():
    class Reckless:
        def decide(self, snapshot):
            return [Placement(job.id, ("a-0",)) for job in snapshot.jobs]

    with pytest.raises(CapacityError, match="Memory"):
        saturate(Reckless(), NODES, [task("t", 600)] * 2)
