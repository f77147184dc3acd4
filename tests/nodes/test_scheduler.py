"""Which node a Pod is bound to."""

from hypothesis import given
from hypothesis import strategies as st

from partita.pods.node_rules import NodeRules, Taint
from partita_testcluster.nodes.scheduler import (
    CORDON,
    NodeCapacity,
    Wants,
    place,
    wants_other_node,
    why_not,
)

GPU = "nvidia.com/gpu"
ONE = Wants({GPU: 1})


def rooms(**gpus: int) -> dict[str, NodeCapacity]:
    return {
        name: NodeCapacity(name, labels={"zone": name}, capacity={GPU: n})
        for name, n in gpus.items()
    }


def hold(nodes: dict[str, NodeCapacity], wants: Wants = ONE) -> str:
    """Place a Pod and let it hold what it asks for; returns its node, empty if there is none."""
    room = place(wants, nodes.values())
    if room is None:
        return ""
    room.used.update(wants.resources)
    return room.name


def test_it_is_said_why_no_node_takes_a_pod() -> None:
    nodes = rooms(a=1, b=0)
    nodes["c"] = NodeCapacity("c", taints=[CORDON], capacity={GPU: 1})
    wants = Wants({GPU: 1}, NodeRules.read({"nodeSelector": {"zone": "b"}}))
    assert why_not(wants, nodes.values()) == (
        f"0/3 nodes are available: 1 Insufficient {GPU}, 1 node(s) didn't match Pod's node "
        "affinity/selector, 1 node(s) were unschedulable."
    )


def test_pods_go_where_most_is_left() -> None:
    nodes = rooms(a=1, b=2)
    assert [hold(nodes) for _ in range(4)] == ["b", "a", "b", ""]


def test_soft_taints_and_the_mark_of_a_new_node_do_not_matter() -> None:
    taints = [
        Taint(key="gpu", effect="PreferNoSchedule"),
        Taint(key="node.kubernetes.io/not-ready", effect="NoSchedule"),
    ]
    assert NodeCapacity("a", taints=taints, capacity={GPU: 1}).takes(ONE)


def test_a_cordoned_node_takes_only_who_tolerates_that() -> None:
    room = NodeCapacity("a", taints=[CORDON], capacity={GPU: 1})
    assert not room.takes(ONE)
    assert room.takes(Wants({GPU: 1}, NodeRules.read({"tolerations": [{"operator": "Exists"}]})))


def on_node(name: str) -> NodeRules:
    """The node selector of an allocation."""
    chosen = {"key": "metadata.name", "operator": "In", "values": [name]}
    required = {"nodeSelectorTerms": [{"matchFields": [chosen]}]}
    return NodeRules.read(
        {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}
    )


def test_a_pod_waits_until_its_claims_are_allocated() -> None:
    nodes = rooms(a=1, b=1)
    wants = Wants(unallocated=True)
    assert hold(nodes, wants) == ""
    assert why_not(wants, nodes.values()) == (
        "0/2 nodes are available: 2 cannot allocate all claims."
    )


def test_an_allocated_claim_leads_to_its_node() -> None:
    assert hold(rooms(a=4, b=1), Wants(allocated_on=[on_node("b")])) == "b"
    assert hold(rooms(a=4, b=1), Wants(allocated_on=[NodeRules()])) == "a"


def test_two_claims_on_different_nodes_fit_nowhere() -> None:
    wants = Wants(allocated_on=[on_node("a"), on_node("b")])
    assert hold(rooms(a=1, b=1), wants) == ""


def test_only_a_node_that_lacks_nothing_else_makes_an_allocation_wrong() -> None:
    nodes = rooms(a=0, b=1)
    wants = Wants({GPU: 1}, allocated_on=[on_node("a")])
    assert why_not(wants, nodes.values()) == (
        f"0/2 nodes are available: 1 Insufficient {GPU}, 1 resourceclaim not available on the node."
    )
    assert wants_other_node(wants, nodes.values())
    assert not wants_other_node(wants, rooms(a=0, b=0).values())


@given(st.lists(st.integers(1, 3)))
def test_nothing_is_given_away_twice(counts: list[int]) -> None:
    nodes = rooms(a=3, b=5)
    for count in counts:
        if not hold(nodes, Wants({GPU: count})):
            assert all(room.free(GPU) < count for room in nodes.values())
        assert all(room.free(GPU) >= 0 for room in nodes.values())
