from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partita_policies import GPU, Booking, Capacity, CapacityError, CapacityShortage, Job, Node
from support.strategies import GIB, placements, snapshots, within_limits


def gpu(gpu_id="gpu-0", **fields):
    return GPU(**{"id": gpu_id, "node": "node-0", "memory": 10 * GIB, "max_jobs": 4, **fields})


def job(job_id="job", gib=2, **fields):
    return Job(id=job_id, name=job_id, namespace="team", memory=gib * GIB, **fields)


HELD = Booking("other", 4 * GIB, slots=2, clients=40)


@pytest.mark.parametrize(
    ("wanted", "on", "refusal"),
    [
        (job(gib=6), gpu(bookings=(HELD,)), None),
        (job(gib=7), gpu(bookings=(HELD,)), CapacityShortage.MEMORY),
        (job(gib=11), gpu(bookings=(HELD,)), CapacityShortage.MEMORY),
        (job(slots=2), gpu(bookings=(HELD,)), None),
        (job(slots=3), gpu(bookings=(HELD,)), CapacityShortage.JOBS),
        (job(clients=8), gpu(bookings=(HELD,)), None),
        (job(clients=9), gpu(bookings=(HELD,)), CapacityShortage.CLIENTS),
        (job(alone=True), gpu(bookings=(HELD,)), CapacityShortage.ALONE),
        (job(alone=True, gib=0), gpu(), None),
        (job(alone=True, gib=11), gpu(), CapacityShortage.MEMORY),
        (job(alone=True, slots=5), gpu(), CapacityShortage.JOBS),
        (job(gib=0), gpu(bookings=(replace(HELD, alone=True, memory=0),)), CapacityShortage.ALONE),
        (job("other"), gpu(bookings=(HELD,)), CapacityShortage.BOOKED),
        (job(), gpu("another"), CapacityShortage.UNKNOWN),
        (job(gib=0), gpu(bookings=(replace(HELD, memory=11 * GIB),)), CapacityShortage.MEMORY),
        (job(products=("T4", "A10")), gpu(product="A10"), None),
        (job(products=("T4", "A10")), gpu(product="V100"), CapacityShortage.PRODUCT),
        (job(products=("T4",)), gpu(), CapacityShortage.PRODUCT),
        (job(nodes=frozenset({"node-0", "node-9"})), gpu(), None),
        (job(nodes=frozenset({"node-9"})), gpu(), CapacityShortage.NOT_ELIGIBLE),
    ],
)
def test_says_what_keeps_a_job_from_a_gpu(wanted, on, refusal):
    assert Capacity([on]).why_not(wanted, "gpu-0") == refusal


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
        (job("other"), ["gpu-1"], CapacityShortage.BOOKED),
        (job(gpus=2, gib=8), ["gpu-0", "gpu-1"], CapacityShortage.MEMORY),
    ],
)
def test_says_what_keeps_a_job_from_a_set_of_gpus(wanted, chosen, refusal):
    room = Capacity([gpu(bookings=(HELD,)), gpu("gpu-1"), gpu("gpu-2", node="node-1")])
    assert room.why_not_together(wanted, chosen) == refusal


SMALL = Node("node-0", 8000, 16 * GIB, 50 * GIB)
THIRD = Booking("third", GIB, cpu=3000, host_memory=6 * GIB, host_storage=20 * GIB)


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
    room = Capacity([gpu(bookings=(THIRD,)), gpu("gpu-1", node="node-1")], [SMALL])
    assert room.why_not(wanted, "gpu-0") == refusal
    assert room.first_fit(wanted) == (
        None if wanted.memory > 10 * GIB else ("gpu-1",) if refusal else ("gpu-0",)
    )


def test_first_fit_looks_only_on_nodes_that_a_job_may_use():
    room = Capacity([gpu(), gpu("gpu-1", node="node-1"), gpu("gpu-2", node="node-1")])
    assert room.first_fit(job(nodes=frozenset({"node-1"}))) == ("gpu-1",)
    assert room.first_fit(job(nodes=frozenset({"node-1"}), gpus=2)) == ("gpu-1", "gpu-2")
    assert room.first_fit(job(nodes=frozenset({"node-0"}), gpus=2)) is None
    assert room.first_fit(job(gpus=2)) == ("gpu-1", "gpu-2")


def test_a_node_is_asked_once_for_a_job_on_several_of_its_gpus_and_gets_all_back():
    pair = job("pair", gpus=2, cpu=4000, host_memory=8 * GIB)
    booked = Booking("pair-0", GIB, cpu=4000, host_memory=8 * GIB)
    room = Capacity([gpu(bookings=(booked,)), gpu("gpu-1", bookings=(booked,))], [SMALL])
    assert room.hosts.left("node-0") == (4000, 8 * GIB, 50 * GIB)
    room.take(pair, room.first_fit(pair))
    assert room.hosts.left("node-0") == (0, 0, 50 * GIB)
    assert room.first_fit(job(cpu=1)) is None
    assert room.first_fit(job()) == ("gpu-0",)
    room.give_back("pair-0")
    assert room.hosts.left("node-0") == (4000, 8 * GIB, 50 * GIB)
    assert room.first_fit(job(cpu=1)) == ("gpu-0",)
    assert Capacity([gpu()]).hosts is None


def test_more_booked_than_a_node_has_keeps_away_those_alone_who_ask_for_it():
    much = Booking("much", GIB, cpu=9000)
    room = Capacity([gpu(bookings=(much,))], [SMALL])
    assert room.why_not(job(cpu=1), "gpu-0") == CapacityShortage.HOST
    assert room.why_not(job(host_memory=GIB), "gpu-0") is None
    assert room.why_not(job(), "gpu-0") is None


def test_a_refused_job_takes_nothing():
    room = Capacity([gpu(), gpu("gpu-1")])
    with pytest.raises(CapacityError, match="job cannot have gpu-0, gpu-9: Unknown"):
        room.take(job(gpus=2), ["gpu-0", "gpu-9"])
    assert room["gpu-0"].holders == {}
    assert "gpu-9" not in room


def test_nothing_is_given_back_that_nobody_holds():
    with pytest.raises(CapacityError, match="job holds no GPU"):
        Capacity([gpu()]).give_back("job")


def test_an_alone_job_books_all_of_its_gpu_and_gives_all_back():
    room = Capacity([gpu()])
    room.take(job(alone=True, gib=1), ["gpu-0"])
    assert room["gpu-0"].memory == 0
    assert room.full
    assert not room.has_idle
    room.give_back("job")
    assert room["gpu-0"].memory == 10 * GIB
    assert not room.full
    assert room.has_idle


def test_more_booked_than_the_gpu_has_admits_nobody_until_enough_is_given_back():
    room = Capacity([gpu(bookings=(replace(HELD, memory=8 * GIB), Booking("b", 4 * GIB)))])
    assert room["gpu-0"].memory == -2 * GIB
    assert room.first_fit(job(gib=0)) is None
    room.give_back("b")
    assert room.first_fit(job(gib=2)) == ("gpu-0",)


def test_first_fit_looks_past_gpus_whose_memory_alone_would_do():
    crowded = gpu(max_jobs=1, bookings=(Booking("b", 0),))
    few_clients = gpu("gpu-1", max_clients=2)
    room = Capacity([crowded, few_clients, gpu("gpu-2")])
    assert room.first_fit(job(clients=3)) == ("gpu-2",)
    assert room.first_fit(job()) == ("gpu-1",)


def test_first_fit_of_a_node_looks_nowhere_else():
    room = Capacity([gpu(), gpu("gpu-1", node="node-1")])
    assert room.first_fit(job(), "node-1") == ("gpu-1",)
    assert room.first_fit(job(gpus=2), "node-1") is None
    assert room.first_fit(job(), "no-such-node") is None


def test_first_fit_does_not_offer_a_second_place_to_a_job_that_holds_one():
    room = Capacity([gpu(), gpu("gpu-1")])
    room.take(job(), ["gpu-0"])
    assert room.first_fit(job()) is None


def expected_first_fit(room, snapshot, wanted):
    """Find it the slow way: every node in order, every GPU of it in order."""
    if wanted.gpus == 1:
        ones = (one.id for one in snapshot.gpus if room.why_not(wanted, one.id) is None)
        return next(((one,) for one in ones), None)
    for node in dict.fromkeys(one.node for one in snapshot.gpus):
        here = [one.id for one in snapshot.gpus if one.node == node]
        fitting = [one for one in here if room.why_not(wanted, one) is None]
        if len(fitting) >= wanted.gpus:
            return tuple(fitting[: wanted.gpus])
    return None


@given(snapshots(max_jobs=12), st.data())
def test_first_fit_finds_the_first_whatever_was_taken_and_given_back(snapshot, data):
    room = Capacity(snapshot.gpus, snapshot.nodes)
    for wanted in snapshot.jobs:
        found = room.first_fit(wanted)
        assert found == expected_first_fit(room, snapshot, wanted)
        if found is not None:
            room.take(wanted, found)
        holders = sorted({holder for one in snapshot.gpus for holder in room[one.id].holders})
        if holders and data.draw(st.booleans()):
            room.give_back(data.draw(st.sampled_from(holders)))


@given(snapshots().flatmap(lambda one: st.tuples(st.just(one), placements(one))))
def test_no_proposals_get_a_gpu_beyond_its_limits(drawn):
    snapshot, proposed = drawn
    room = Capacity(snapshot.gpus, snapshot.nodes)
    waiting = {one.id: one for one in snapshot.jobs}
    for placement in proposed:
        wanted = waiting.get(placement.job)
        if wanted is not None and room.why_not_together(wanted, placement.gpus) is None:
            room.take(wanted, placement.gpus)
    for one in snapshot.gpus:
        held = list(room[one.id].holders.values())
        assert within_limits(one, held)
        assert room[one.id].slots == one.max_jobs - sum(holder.slots for holder in held)
        assert room[one.id].clients == one.max_clients - sum(holder.clients for holder in held)


@given(snapshots())
def test_giving_all_back_restores_an_idle_gpu(snapshot):
    room = Capacity(snapshot.gpus, snapshot.nodes)
    for holder in [holder for one in snapshot.gpus for holder in room[one.id].holders]:
        room.give_back(holder)
    for one in snapshot.gpus:
        free = room[one.id]
        assert (free.memory, free.slots, free.clients) == (
            one.memory,
            one.max_jobs,
            one.max_clients,
        )
        assert not free.alone


@given(snapshots())
def test_reach_is_the_most_memory_with_which_a_job_may_have_a_gpu_and_others_beside_it(snapshot):
    room = Capacity(snapshot.gpus, snapshot.nodes)
    for wanted in snapshot.jobs:
        for one in snapshot.gpus:
            reach = room.reach(wanted, one.id)
            here = [other.id for other in snapshot.gpus if other.node == one.node]

            def fits(memory, one=one, here=here, wanted=wanted):
                like = replace(wanted, memory=memory)
                enough = sum(room.why_not(like, other) is None for other in here) >= wanted.gpus
                return room.why_not(like, one.id) is None and enough

            assert not fits(reach + 1)
            assert reach == -1 or fits(reach)
