"""What the Pods on each node request of it, added up as they come and go."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from partita.kube.kinds import PODS
from partita.pods.requests import Requests
from partita.store.missing import forget_missing
from partita.store.node_usage import NodeUsage
from partita.store.state import FREED_AFTER
from support.builders import a_state, has_keys, node_body, partition_body, server_body

NODES = ("", "node-1", "node-2")


def a_pod(
    uid: str = "pod",
    version: int = 1,
    *,
    node: str = "node-1",
    cpu: int = 1,
    phase: str = "Running",
    nominated: str = "",
    claims: bool = False,
) -> dict[str, Any]:
    resources = {"requests": {"cpu": str(cpu), "memory": f"{cpu}Gi"}}
    return {
        "metadata": {"uid": uid, "name": uid, "namespace": "web", "resourceVersion": str(version)},
        "spec": {
            "nodeName": node,
            "containers": [{"name": "main", "resources": resources}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}] if claims else [],
        },
        "status": {"phase": phase, "nominatedNodeName": nominated},
    }


def used(cpu: int) -> Requests:
    return Requests(1000 * cpu, cpu << 30)


class Counted(NodeUsage):
    """Usage that notes who was told of what was given back."""

    def __init__(self) -> None:
        self.freed: list[str] = []
        super().__init__(self.freed.append)

    def gives(self, *pods: dict[str, Any], gone: str = "") -> list[str]:
        """Return the nodes that have more free once these Pods are told of."""
        self.freed.clear()
        for pod in pods:
            self.take(pod)
        if gone:
            self.take(a_pod(gone), deleted=True)
        return list(self.freed)


def test_a_pod_counts_once_it_is_bound():
    usage = Counted()
    usage.take(a_pod(node="", phase="Pending"))
    assert usage.on("") == usage.on("node-1") == used(0)
    assert usage.of("pod") == used(1)
    assert usage.gives(a_pod(version=2, phase="Pending")) == []
    assert usage.on("node-1") == used(1)


def test_a_pod_that_preempts_others_counts_on_its_nominated_node():
    usage = Counted()
    usage.take(a_pod(node="", phase="Pending"))
    assert usage.gives(a_pod(version=2, node="", phase="Pending", nominated="node-1")) == []
    assert usage.on("node-1") == used(1)
    assert usage.gives(a_pod(version=3, node="node-2", nominated="node-1")) == ["node-1"]
    assert (usage.on("node-1"), usage.on("node-2")) == (used(0), used(1))


def test_a_nominated_pod_with_claims_counts_with_its_allocation_alone():
    usage = Counted()
    usage.take(a_pod(node="", phase="Pending", nominated="node-1", claims=True))
    assert usage.on("node-1") == used(0)
    usage.take(a_pod(version=2, claims=True))
    assert usage.on("node-1") == used(1)


def test_an_older_event_changes_nothing():
    usage = Counted()
    assert usage.gives(a_pod(version=5, phase="Failed"), a_pod(version=4)) == []
    assert usage.on("node-1") == used(0)


def test_a_pod_resized_in_place_gives_back_what_it_no_longer_has():
    usage = Counted()
    assert usage.gives(a_pod(cpu=4), a_pod(version=2, cpu=5)) == []
    assert usage.gives(a_pod(version=3, cpu=1)) == ["node-1"]
    assert usage.on("node-1") == used(1)


pods = st.builds(
    lambda uid, **fields: (uid, fields),
    st.sampled_from("abcd"),
    node=st.sampled_from(NODES),
    cpu=st.integers(0, 3),
    phase=st.sampled_from(["Pending", "Running", "Running", "Succeeded", "Failed"]),
)


@given(st.lists(st.tuples(pods, st.sampled_from(["apply", "repeat", "remove"])), max_size=20))
def test_a_total_is_the_sum_of_the_pods_and_a_repeat_changes_nothing(events):
    usage, there = Counted(), {}
    for version, ((uid, fields), event) in enumerate(events, start=1):
        before = {node: usage.on(node) for node in NODES}
        if event == "remove":
            freed = usage.gives(gone=uid)
            there.pop(uid, None)
        else:
            freed = usage.gives(a_pod(uid, version, **fields))
            there[uid] = fields
            if event == "repeat":
                assert usage.gives(a_pod(uid, version, **fields)) == []
        for node in NODES:
            counted = (
                f["cpu"]
                for f in there.values()
                if node and f["node"] == node and f["phase"] not in {"Succeeded", "Failed"}
            )
            assert usage.on(node) == used(sum(counted))
            assert (node in freed) == (usage.on(node).cpu < before[node].cpu)
    assert usage._pods.keys() == there.keys()


class TestWhichPartitionsAreScheduled:
    def state(self) -> Any:
        state = a_state(partition_body(), node_body(), server_body())
        state.queues.jobs.take()
        state.queues.partitions.take()
        assert not has_keys(state)
        return state

    def test_none_is_when_no_job_waits_for_the_node(self):
        state = self.state()
        state.apply_pod(a_pod())
        state.apply_pod(a_pod(version=2, phase="Succeeded"))
        assert not has_keys(state)

    def test_one_whose_jobs_wait_for_the_node_is_when_a_pod_ends(self):
        state = self.state()
        state.scarce_nodes["shared"] = frozenset({"node-1"})
        state.apply_pod(a_pod())
        state.apply_pod(a_pod("other", node="node-2"))
        state.apply_pod(a_pod("other", node="node-2"), deleted=True)
        assert not has_keys(state)
        state.apply_pod(a_pod(version=2), deleted=True)
        assert 0 < (state.queues.partitions.due_in() or 0) <= FREED_AFTER

    def test_pods_that_went_without_an_event_are_forgotten(self):
        state = self.state()
        state.scarce_nodes["shared"] = frozenset({"node-1"})
        state.apply_pod(a_pod("a", 3))
        state.apply_pod(a_pod("b", 4))
        state.apply_pod(a_pod("c", 9))
        assert forget_missing(state, PODS, {"b"}, 8) == 1
        assert state.usage.on("node-1") == used(2)
        assert 0 < (state.queues.partitions.due_in() or 0) <= FREED_AFTER

    def test_heartbeats_of_nodes_add_no_key(self):
        state = self.state()
        beat = node_body()
        beat["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-01-01T12:00:10Z"
        state.apply_node(beat)
        assert not has_keys(state)
        state.apply_node(node_body(allocatable={"cpu": "8"}))
        assert state.queues.partitions.take() == {"shared"}
