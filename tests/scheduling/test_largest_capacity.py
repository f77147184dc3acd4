"""The largest capacity of a partition is computed again whenever it may have changed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partita.models import GPUPartition, GPUServer
from partita.models.partition_status import GPUState
from partita.scheduling import largest_capacity
from partita.scheduling.gpu_state import server_state
from partita.scheduling.largest_capacity import LargestCapacity
from partita.scheduling.node_fit import Largest
from partita.store.state import State
from support.builders import (
    a_state,
    allocation,
    gpus_up,
    node_body,
    owner,
    partition_body,
    server_body,
    server_pod_body,
    take,
)

SERVERS = st.sampled_from(["shared-0", "shared-1"])
NODES = st.sampled_from(["node-1", "node-2"])


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Draw none, some or all of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


CHANGES = st.one_of(
    st.tuples(st.just("partition"), st.just("shared"), some(
        sharing=some(memoryReservePercent=st.sampled_from([0, 50])),
        tolerations=st.just([{"key": "gpu"}]),
        gpuSelector=st.just({"minMemory": "60Gi"}),
    )),
    st.tuples(st.just("server"), SERVERS, some(
        node=NODES,
        memory=st.sampled_from(["40Gi", "80Gi"]),
        conditions=st.sampled_from([{}, {"Ready": "False"}, {"Faulted": "True"}]),
        allocations=st.just({"claim-train": allocation()}),
        drainSince=st.just("2026-01-01T00:00:00Z"),
        status=some(
            uuid=st.just(""),
            maxClients=st.just(60),
            protocol=st.just(3),
            enforcement=st.just("Driver"),
        ),
    )),
    st.tuples(st.just("pod"), SERVERS, some(
        node=st.sampled_from(["", "node-1", "node-2"]),
        phase=st.sampled_from(["Pending", "Failed"]),
    )),
    st.tuples(st.just("node"), NODES, some(
        ready=st.sampled_from([False]),
        cordoned=st.sampled_from([True]),
        allocatable=st.just({"cpu": "4", "memory": "8Gi"}),
    )),
)  # fmt: skip


class Cluster:
    """A cache of objects, which are deleted and created again."""

    def __init__(self) -> None:
        self.state: State = a_state()
        self.lives: Counter[tuple[str, str]] = Counter()
        self.generation = 0
        self.kept = LargestCapacity()

    def body(self, kind: str, name: str, fields: dict[str, Any]) -> dict[str, Any]:
        """Build the next version of an object."""
        uid = f"{kind}-{name}-{self.lives[kind, name]}"
        if kind == "node":
            found: dict[str, Any] = node_body(name, uid=uid, **fields)
            return found
        if kind == "partition":
            self.generation += 1
            meta = {"uid": uid, "generation": self.generation}
            return partition_body(name, metadata=meta, **fields)
        if kind == "pod":
            server = owner("GPUServer", name, f"server-{name}-{self.lives['server', name]}")
            pod: dict[str, Any] = server_pod_body(name, uid=uid, ownerReferences=[server], **fields)
            return pod
        pod_uid = f"pod-{name}-{self.lives['pod', name]}"
        status = {"podUID": pod_uid} | fields.pop("status", {})
        return server_body(name, metadata={"uid": uid}, status=status, **fields)

    def change(self, kind: str, name: str, fields: dict[str, Any], *, delete: bool) -> None:
        """Apply a version of an object, or its deletion."""
        take(self.state, self.body(kind, name, dict(fields)), deleted=delete)
        self.lives[kind, name] += delete

    @property
    def largest(self) -> Largest | None:
        """The largest capacity, from all objects."""
        partition = self.state.partitions.get("shared")
        return LargestCapacity().compute(partition, self.state) if partition else None


@given(st.lists(st.tuples(CHANGES, st.sampled_from([False, False, False, True])), max_size=30))
def test_what_changes_the_largest_capacity_has_it_computed_again(changes):
    cluster = Cluster()
    for (kind, name, fields), delete in changes:
        before = cluster.largest
        cluster.change(kind, name, fields, delete=delete)
        again = "shared" in cluster.state.queues.capacities.take()
        assert again or cluster.largest == before
        if again and (partition := cluster.state.partitions.get("shared")) is not None:
            assert cluster.kept.compute(partition, cluster.state) == cluster.largest


def test_an_allocation_leaves_it():
    state = a_state(partition_body(), server_body())
    state.queues.capacities.take()
    state.apply_server(server_body(allocations={"claim-train": allocation()}), ours=True)
    assert not state.queues.capacities.take()


def test_only_a_gpu_that_has_changed_is_looked_at_again(monkeypatch: pytest.MonkeyPatch):
    looked = []

    def looking(server: GPUServer, partition: GPUPartition, state: State) -> GPUState:
        looked.append(server.metadata.name)
        return server_state(server, partition, state)

    monkeypatch.setattr(largest_capacity, "server_state", looking)
    names = [f"shared-{n}" for n in range(10)]
    state = a_state(partition_body(), *gpus_up(*map(server_body, names)))
    kept = LargestCapacity()
    changes = (
        (partition_body(), names),
        (partition_body(status={"gpus": 10}), []),
        (server_body("shared-3", status={"maxClients": 60}), ["shared-3"]),
        (partition_body(sharing={"memoryReservePercent": 50}, metadata={"generation": 2}), names),
    )
    for body, expected in changes:
        take(state, body)
        assert kept.compute(state.partitions["shared"], state).gpus_on_node == 10
        assert looked == expected
        looked.clear()
