"""How full a policy fills a cluster."""

import pytest

from bench.policies.saturation import arrivals, saturate
from partita_policies import CapacityError, Placement, create
from partita_policies.types import Objective
from partita_research.simulator.openb import TraceNode, TraceTask

GIB = 2**30
NODES = [
    TraceNode("a", 16000, 64 * GIB, 2, "T4"),
    TraceNode("b", 64000, 64 * GIB, 4, "V100"),
]


def task(name, milli, gpus=1, cpu=0):
    return TraceTask(name, cpu, 0, gpus, milli)


def filled(policy, order):
    found = create(policy) if isinstance(policy, str) else policy
    return saturate(found, NODES, order, Objective.PACKING)


def test_arrivals_ask_for_130_percent_of_the_gpus():
    order = arrivals([task("t", milli) for milli in (50, 300, 1000)], NODES, seed=3)
    assert 7800 - 1000 < sum(one.milli_in_all for one in order) <= 7800


@pytest.mark.parametrize("policy", ["fifo", "fgd", "tetris"])
def test_a_cluster_with_cpu_enough_fills_up(policy):
    assert filled(policy, [task(f"t{n}", 500) for n in range(16)]) == 100.0


def test_cpu_that_runs_out_leaves_gpus_behind():
    order = [task(f"t{n}", 1000, cpu=16000) for n in range(6)]
    assert filled("fgd", order) == pytest.approx(100 * 5 / 6)


def test_tasks_without_a_gpu_take_cpu_alone():
    order = [task("cpu", 0, gpus=0, cpu=16000)] * 5 + [task("gpu", 1000, cpu=16000)]
    assert filled("fifo", order) == 0


def test_several_gpus_are_counted_in_all():
    assert filled("fgd", [task("four", 1000, gpus=4)] * 2) == pytest.approx(100 * 4 / 6)


def test_what_a_policy_leaves_for_later_is_offered_again_at_the_end():
    class OneAtATime:
        def decide(self, snapshot):
            return create("fifo").decide(snapshot)[:1]

    assert filled(OneAtATime(), [task(f"t{n}", 1000) for n in range(4)]) == pytest.approx(
        100 * 4 / 6
    )


def test_a_policy_that_places_what_does_not_fit_is_found_out():
    class Reckless:
        def decide(self, snapshot):
            return [Placement(job.id, ("a-0",)) for job in snapshot.jobs]

    with pytest.raises(CapacityError, match="Memory"):
        filled(Reckless(), [task("t", 600)] * 2)
