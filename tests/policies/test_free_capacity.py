from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partita_policies import (
    GPU,
    CapacityError,
    CapacityShortage,
    Choice,
    FreeCapacity,
    Job,
    Node,
    RunningJob,
)
from support.strategies import GIB, placements, snapshots, within_limits


def gpu(gpu_id="gpu-0", **fields):
    return GPU(**{"id": gpu_id, "node": "node-0", "memory": 10 * GIB, "max_jobs": 4, **fields})


def job(job_id="job", gib=2, **fields):
    return Job(id=job_id, name=job_id, namespace="team", memory=gib * GIB, **fields)


HELD = RunningJob("other", 4 * GIB, slots=2, clients=40)


@pytest.mark.parametrize(
    ("wanted", "on", "refusal"),
    [
        (job(gib=6), gpu(running=(HELD,)), None),
        (job(gib=7), gpu(running=(HELD,)), CapacityShortage.MEMORY),
        (job(gib=11), gpu(running=(HELD,)), CapacityShortage.MEMORY),
        (job(slots=2), gpu(running=(HELD,)), None),
        (job(slots=3), gpu(running=(HELD,)), CapacityShortage.JOBS),
        (job(clients=8), gpu(running=(HELD,)), None),
        (job(clients=9), gpu(running=(HELD,)), CapacityShortage.CLIENTS),
        (job(alone=True), gpu(running=(HELD,)), CapacityShortage.ALONE),
        (job(alone=True, gib=0), gpu(), None),
        (job(alone=True, gib=11), gpu(), CapacityShortage.MEMORY),
        (job(alone=True, slots=5), gpu(), CapacityShortage.JOBS),
        (job(gib=0), gpu(running=(replace(HELD, alone=True, memory=0),)), CapacityShortage.ALONE),
        (job("other"), gpu(running=(HELD,)), CapacityShortage.ALLOCATED),
        (job(), gpu("another"), CapacityShortage.UNKNOWN),
        (job(gib=0), gpu(running=(replace(HELD, memory=11 * GIB),)), CapacityShortage.MEMORY),
        (job(products=("T4", "A10")), gpu(product="A10"), None),
        (job(products=("T4", "A10")), gpu(product="V100"), CapacityShortage.PRODUCT),
        (job(products=("T4",)), gpu(), CapacityShortage.PRODUCT),
        (job(nodes=frozenset({"node-0", "node-9"})), gpu(), None),
        (job(nodes=frozenset({"node-9"})), gpu(), CapacityShortage.NOT_ELIGIBLE),
    ],
)
def test_says_what_keeps_a_job_from_a_gpu(wanted, on, refusal):
    assert FreeCapacity([on]).why_not(wanted, "gpu-0") == refusal


@pytest.mark.parametrize(
    ("wanted", "chosen", "refusal"),
    [
        (job(gpus=2), ["gpu-0", "gpu-1"], None),
        (job(gpus=2), ["gpu-0", "gpu-2"], CapacityShortage.NODE),
        (job(gpus=2), ["gpu-0", "gpu-0"], CapacityShortage.COUNT),
        (job(gpus=2), ["gpu-0"], CapacityShortage.COUNT),
        (job(), ["gpu-0", "gpu-1"], CapacityShortage.COUNT),
        (job(), [], CapacityShortage.COUNT),
        (job(), ["gpu-9"], CapacityShortage.UNKNOWN),
        (job("other"), ["gpu-1"], CapacityShortage.ALLOCATED),
        (job(gpus=2, gib=8), ["gpu-0", "gpu-1"], CapacityShortage.MEMORY),
    ],
)
def test_says_what_keeps_a_job_from_a_set_of_gpus(wanted, chosen, refusal):
    capacity = FreeCapacity([gpu(running=(HELD,)), gpu("gpu-1"), gpu("gpu-2", node="node-1")])
    assert capacity.why_not_together(wanted, chosen) == refusal


SMALL = Node("node-0", 8000, 16 * GIB, 50 * GIB)
THIRD = RunningJob("third", GIB, cpu=3000, host_memory=6 * GIB, host_storage=20 * GIB)


@pytest.mark.parametrize(
    ("wanted", "refusal"),
    [
        (job(cpu=5000, host_memory=10 * GIB), None),
        (job(cpu=5001), CapacityShortage.HOST),
        (job(host_memory=10 * GIB + 1), CapacityShortage.HOST),
        (job(host_storage=30 * GIB), None),
        (job(host_storage=30 * GIB + 1), CapacityShortage.HOST),
        (job(cpu=5000, gib=99), CapacityShortage.MEMORY),
    ],
)
def test_a_job_gets_no_more_than_its_node_has(wanted, refusal):
    capacity = FreeCapacity([gpu(running=(THIRD,)), gpu("gpu-1", node="node-1")], [SMALL])
    assert capacity.why_not(wanted, "gpu-0") == refusal
    assert capacity.first_fit(wanted) == (
        None if wanted.memory > 10 * GIB else ("gpu-1",) if refusal else ("gpu-0",)
    )


def test_a_node_is_asked_once_for_a_job_on_several_of_its_gpus_and_gets_all_back():
    pair = job("pair", gpus=2, cpu=4000, host_memory=8 * GIB)
    allocated = RunningJob("pair-0", GIB, cpu=4000, host_memory=8 * GIB)
    capacity = FreeCapacity(
        [gpu(running=(allocated,)), gpu("gpu-1", running=(allocated,))], [SMALL]
    )
    assert capacity.hosts.left("node-0") == (4000, 8 * GIB, 50 * GIB)
    capacity.take(pair, capacity.first_fit(pair))
    assert capacity.hosts.left("node-0") == (0, 0, 50 * GIB)
    assert capacity.first_fit(job(cpu=1)) is None
    assert capacity.first_fit(job()) == ("gpu-0",)
    capacity.give_back("pair-0")
    assert capacity.hosts.left("node-0") == (4000, 8 * GIB, 50 * GIB)
    assert capacity.first_fit(job(cpu=1)) == ("gpu-0",)
    assert FreeCapacity([gpu()]).hosts is None


def test_more_allocated_than_a_node_has_keeps_away_those_alone_who_ask_for_it():
    much = RunningJob("much", GIB, cpu=9000)
    capacity = FreeCapacity([gpu(running=(much,))], [SMALL])
    assert capacity.why_not(job(cpu=1), "gpu-0") == CapacityShortage.HOST
    assert capacity.why_not(job(host_memory=GIB), "gpu-0") is None
    assert capacity.why_not(job(), "gpu-0") is None


def test_a_refused_job_takes_nothing():
    capacity = FreeCapacity([gpu(), gpu("gpu-1")])
    with pytest.raises(CapacityError, match="job cannot have gpu-0, gpu-9: Unknown"):
        capacity.take(job(gpus=2), ["gpu-0", "gpu-9"])
    assert capacity["gpu-0"].holders == {}
    assert "gpu-9" not in capacity


def test_nothing_is_given_back_that_nobody_holds():
    with pytest.raises(CapacityError, match="job holds no GPU"):
        FreeCapacity([gpu()]).give_back("job")


def test_an_alone_job_allocates_all_of_its_gpu_and_gives_all_back():
    capacity = FreeCapacity([gpu()])
    capacity.take(job(alone=True, gib=1), ["gpu-0"])
    assert capacity["gpu-0"].memory == 0
    assert [*capacity.candidates([job()])] == []
    capacity.give_back("job")
    assert capacity["gpu-0"].memory == 10 * GIB
    assert [*capacity.candidates([job(gib=11), job()])] == [job()]


def test_more_allocated_than_the_gpu_has_admits_nobody_until_enough_is_given_back():
    capacity = FreeCapacity(
        [gpu(running=(replace(HELD, memory=8 * GIB), RunningJob("b", 4 * GIB)))]
    )
    assert capacity["gpu-0"].memory == -2 * GIB
    assert capacity.first_fit(job(gib=0)) is None
    capacity.give_back("b")
    assert capacity.first_fit(job(gib=2)) == ("gpu-0",)


def test_first_fit_of_a_node_looks_nowhere_else():
    capacity = FreeCapacity([gpu(), gpu("gpu-1", node="node-1")])
    assert capacity.first_fit(job(), "node-1") == ("gpu-1",)
    assert capacity.first_fit(job(gpus=2), "node-1") is None
    assert capacity.first_fit(job(), "no-such-node") is None


def expected_first_fit(capacity, snapshot, wanted):
    """Find it the slow way: every node in order, every GPU of it in order."""
    if wanted.gpus == 1:
        ones = (one.id for one in snapshot.gpus if capacity.why_not(wanted, one.id) is None)
        return next(((one,) for one in ones), None)
    for node in dict.fromkeys(one.node for one in snapshot.gpus):
        here = [one.id for one in snapshot.gpus if one.node == node]
        fitting = [one for one in here if capacity.why_not(wanted, one) is None]
        if len(fitting) >= wanted.gpus:
            return tuple(fitting[: wanted.gpus])
    return None


@given(snapshots(max_jobs=12), st.data())
def test_first_fit_finds_the_first_whatever_was_taken_and_given_back(snapshot, data):
    capacity = FreeCapacity(snapshot.gpus, snapshot.nodes)
    for wanted in snapshot.jobs:
        found = capacity.first_fit(wanted)
        assert found == expected_first_fit(capacity, snapshot, wanted)
        fits = {capacity.find(wanted, choice) is not None for choice in Choice}
        assert fits == {found is not None}
        assert found is None or [*capacity.candidates([wanted])]
        if found is not None:
            capacity.take(wanted, found)
        holders = sorted({holder for one in snapshot.gpus for holder in capacity[one.id].holders})
        if holders and data.draw(st.booleans()):
            capacity.give_back(data.draw(st.sampled_from(holders)))


@given(snapshots().flatmap(lambda one: st.tuples(st.just(one), placements(one))))
def test_no_proposals_get_a_gpu_beyond_its_limits(drawn):
    snapshot, proposed = drawn
    capacity = FreeCapacity(snapshot.gpus, snapshot.nodes)
    waiting = {one.id: one for one in snapshot.jobs}
    for placement in proposed:
        wanted = waiting.get(placement.job)
        if wanted is not None and capacity.why_not_together(wanted, placement.gpus) is None:
            capacity.take(wanted, placement.gpus)
    for one in snapshot.gpus:
        held = list(capacity[one.id].holders.values())
        assert within_limits(one, held)
        assert capacity[one.id].slots == one.max_jobs - sum(holder.slots for holder in held)
        assert capacity[one.id].clients == one.max_clients - sum(holder.clients for holder in held)


@given(snapshots())
def test_reach_is_the_most_memory_with_which_a_job_may_have_a_gpu_and_others_beside_it(snapshot):
    capacity = FreeCapacity(snapshot.gpus, snapshot.nodes)
    for wanted in snapshot.jobs:
        for one in snapshot.gpus:
            reach = capacity.reach(wanted, one.id)
            here = [other.id for other in snapshot.gpus if other.node == one.node]

            def fits(memory, one=one, here=here, wanted=wanted):
                like = replace(wanted, memory=memory)
                enough = sum(capacity.why_not(like, other) is None for other in here) >= wanted.gpus
                return capacity.why_not(like, one.id) is None and enough

            assert not fits(reach + 1)
            assert reach == -1 or fits(reach)


def test_a_choice_among_the_gpus_that_a_job_fits():
    full = [RunningJob(f"full-{n}", GIB) for n in range(4)]
    capacity = FreeCapacity(
        [
            gpu("full", running=tuple(full)),
            gpu("two", running=(RunningJob("a", GIB), RunningJob("b", GIB))),
            gpu("one", running=(RunningJob("c", 7 * GIB),)),
            gpu("as-one", running=(RunningJob("d", 6 * GIB),)),
        ]
    )
    assert capacity.find(job(), Choice.FIRST) == ("two",)
    assert capacity.find(job(), Choice.LEAST_LOADED) == ("as-one",)
    assert capacity.find(job(gib=5), Choice.LEAST_LOADED) == ("two",)
    assert capacity.find(job(), Choice.TIGHTEST) == ("one",)
    assert capacity.find(job(gib=9), Choice.TIGHTEST) is None


def test_several_gpus_are_spread_over_nodes_or_packed():
    nodes = {"a": 3, "b": 4, "c": 2}
    capacity = FreeCapacity(
        [gpu(f"{n}{i}", node=n) for n, count in nodes.items() for i in range(count)]
    )
    assert capacity.find(job(gpus=2), Choice.FIRST) == ("a0", "a1")
    assert capacity.find(job(gpus=2), Choice.LEAST_LOADED) == ("b0", "b1")
    assert capacity.find(job(gpus=2), Choice.TIGHTEST) == ("c0", "c1")


def test_a_job_that_must_be_alone_leaves_the_largest_idle_gpu_to_others():
    capacity = FreeCapacity([gpu("large", memory=20 * GIB), gpu("small")])
    assert capacity.find(job(alone=True), Choice.LEAST_LOADED) == ("small",)


@given(snapshots())
def test_the_least_loaded_gpu_has_the_fewest_jobs_and_then_the_most_memory(snapshot):
    capacity = FreeCapacity(snapshot.gpus, snapshot.nodes)
    for wanted in snapshot.jobs:
        if wanted.gpus > 1 or wanted.alone:
            continue
        found = capacity.find(wanted, Choice.LEAST_LOADED)
        fitting = [one.id for one in snapshot.gpus if capacity.why_not(wanted, one.id) is None]
        least = min(
            fitting,
            key=lambda one: (len(capacity[one].holders), -capacity[one].memory),
            default=None,
        )
        assert found == ((least,) if least is not None else None)
        if found is not None:
            capacity.take(wanted, found)


@given(snapshots(), st.data())
def test_what_follows_a_snapshot_is_as_if_built_from_the_next(snapshot, data):
    known = FreeCapacity(snapshot.gpus, snapshot.nodes)
    known.index.fits(job())
    placed = []
    for wanted in snapshot.jobs:
        found = known.find(wanted, data.draw(st.sampled_from(Choice)))
        if found is not None:
            known.take(wanted, found)
            placed.append((wanted, found))
    for gone in (
        data.draw(st.sets(st.sampled_from([one.id for one, _ in placed]))) if placed else ()
    ):
        known.give_back(gone)
    started = data.draw(st.sampled_from(placed)) if placed else None
    later = tuple(
        replace(one, running=(*one.running[1:], RunningJob(started[0].id, started[0].memory)))
        if started and one.id in started[1]
        else one
        for one in snapshot.gpus
    )
    assert known.follow(later, snapshot.nodes)
    fresh = FreeCapacity(later, snapshot.nodes)
    assert [known[one.id] for one in later] == [fresh[one.id] for one in later]
    for wanted in snapshot.jobs:
        assert [known.why_not(wanted, one.id) for one in later] == [
            fresh.why_not(wanted, one.id) for one in later
        ]
        for choice in Choice:
            assert known.find(wanted, choice) == fresh.find(wanted, choice)
    assert not known.follow((*later, gpu("another")), snapshot.nodes)
    assert not known.follow(later, (*snapshot.nodes, Node("another", 1, 1)))
