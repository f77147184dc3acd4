"""Which node a Pod is bound to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partita.embedded.nodes.scheduler import Cluster, SchedulableNode, Unschedulable, Wants

GPU = "nvidia.com/gpu"
ONE = Wants({GPU: 1})


def cluster(**gpus: int) -> Cluster:
    result = Cluster()
    for name, count in gpus.items():
        result.add(SchedulableNode(name, labels={"zone": name}))
        result.offer(name, GPU, count)
    return result


def reason(of: Cluster, wants: Wants) -> str:
    with pytest.raises(Unschedulable) as refusal:
        of.place("refused", wants)
    return str(refusal.value)


def test_pods_go_where_most_is_left() -> None:
    nodes = cluster(a=1, b=2)
    assert [nodes.place(uid, ONE) for uid in "123"] == ["b", "a", "b"]
    assert reason(nodes, ONE) == "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."


def test_what_a_pod_gives_back_can_be_had_again() -> None:
    nodes = cluster(a=1)
    nodes.place("1", ONE)
    assert not nodes.available(GPU)
    assert list(nodes.release("1")) == [GPU]
    assert nodes.available(GPU)
    assert list(nodes.release("1")) == []
    assert nodes.place("2", ONE) == "a"


def test_a_slice_leads_to_the_node_of_its_gpu() -> None:
    nodes = cluster(a=4, b=4)
    nodes.offer("b", "gpu.partita.dev/12345678", 8)
    assert nodes.place("1", Wants({"gpu.partita.dev/12345678": 1})) == "b"
    nodes.offer("b", "gpu.partita.dev/12345678", 0)
    assert "2 Insufficient gpu.partita.dev/12345678" in reason(
        nodes, Wants({"gpu.partita.dev/12345678": 1})
    )


def test_selectors_and_affinity_hold() -> None:
    nodes = cluster(a=1, b=1)
    assert nodes.place("1", Wants({GPU: 1}, node_selector={"zone": "b"})) == "b"
    missing = Wants({GPU: 1}, node_selector={"zone": "c"})
    assert "2 node(s) didn't match Pod's node affinity/selector" in reason(nodes, missing)


@pytest.mark.parametrize(
    ("expression", "holds"),
    [
        ({"key": "zone", "operator": "In", "values": ["a", "b"]}, True),
        ({"key": "zone", "operator": "NotIn", "values": ["a"]}, False),
        ({"key": "zone", "operator": "Exists"}, True),
        ({"key": "zone", "operator": "DoesNotExist"}, False),
        ({"key": "memory", "operator": "Gt", "values": ["40000"]}, True),
        ({"key": "memory", "operator": "Lt", "values": ["40000"]}, False),
        ({"key": "absent", "operator": "Gt", "values": ["1"]}, False),
    ],
)
def test_affinity_expressions(expression: dict, *, holds: bool) -> None:
    nodes = Cluster()
    nodes.add(SchedulableNode("a", labels={"zone": "a", "memory": "40960"}))
    nodes.offer("a", GPU, 1)
    wants = Wants({GPU: 1}, affinity=[{"matchExpressions": [expression]}])
    if holds:
        assert nodes.place("1", wants) == "a"
    else:
        assert "affinity" in reason(nodes, wants)


def test_taints_keep_off_who_does_not_tolerate_them() -> None:
    nodes = cluster(a=1)
    nodes.nodes["a"].taints = [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]
    assert "1 node(s) had untolerated taint {gpu: yes}" in reason(nodes, ONE)
    for toleration in (
        {"key": "gpu", "value": "no"},
        {"key": "gpu", "operator": "Exists", "effect": "NoExecute"},
    ):
        assert "taint" in reason(nodes, Wants({GPU: 1}, tolerations=[toleration]))
    tolerant = Wants({GPU: 1}, tolerations=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}])
    assert nodes.place("1", tolerant) == "a"


def test_soft_taints_and_the_mark_of_a_new_node_do_not_matter() -> None:
    nodes = cluster(a=1)
    nodes.nodes["a"].taints = [
        {"key": "gpu", "effect": "PreferNoSchedule"},
        {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
    ]
    assert nodes.place("1", ONE) == "a"


def test_a_cordoned_node_takes_only_who_tolerates_that() -> None:
    nodes = cluster(a=1)
    nodes.nodes["a"].cordoned = True
    nodes.nodes["a"].taints = [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]
    assert "1 node(s) were unschedulable" in reason(nodes, ONE)
    assert nodes.place("1", Wants({GPU: 1}, tolerations=[{"operator": "Exists"}])) == "a"


def test_a_removed_node_takes_its_pods_along() -> None:
    nodes = cluster(a=1)
    nodes.place("1", ONE)
    nodes.remove("a")
    nodes.remove("a")
    assert reason(nodes, ONE) == "0/0 nodes are available: there is no node."
    assert list(nodes.release("1")) == []


def test_a_pod_that_runs_already_holds_its_place_once() -> None:
    nodes = cluster(a=2)
    nodes.hold("1", ONE, "a")
    nodes.hold("1", ONE, "a")
    assert nodes.nodes["a"].free(GPU) == 1


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9), st.integers(1, 3))))
def test_nothing_is_given_away_twice(steps: list[tuple[bool, int, int]]) -> None:
    nodes = cluster(a=3, b=5)
    held: dict[str, int] = {}
    for place, pod, count in steps:
        uid = str(pod)
        if not place:
            nodes.release(uid)
            held.pop(uid, None)
        elif uid not in held:
            try:
                nodes.place(uid, Wants({GPU: count}))
            except Unschedulable:
                assert all(node.free(GPU) < count for node in nodes.nodes.values())
            else:
                held[uid] = count
        assert all(node.free(GPU) >= 0 for node in nodes.nodes.values())
        assert sum(node.used[GPU] for node in nodes.nodes.values()) == sum(held.values())
