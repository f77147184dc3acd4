"""What nodes under maintenance mean for their GPUs."""

from typing import Any

import pytest

from partita.models import GPUServer
from partita.partitions.gpu_servers import GPUServerChanges, plan_gpu_servers
from partita.partitions.maintenance import Maintenance, is_protected, maintain
from partita.store.views import NodeView, PodView
from support.builders import (
    DELETING,
    a_partition,
    a_server,
    allocation,
    node_body,
    server_pod_body,
    view_of,
)

UPGRADE = "nvidia.com/gpu-driver-upgrade-state"
CLIENT = "nvidia.com/gpu.deploy.client"
SINCE = "2026-11-21T12:00:00Z"
OURS = {"drainSince": SINCE, "drainReason": "NodeMaintenance"}
ALLOCATED = {"claim-train": allocation()}


def node(labels: dict[str, str] | None = None, **fields: Any) -> NodeView:
    body = node_body(**fields)
    body["metadata"]["labels"] = labels or {}
    return NodeView.parse(body)


def pod(**fields: Any) -> PodView:
    return view_of(server_pod_body("shared-0", **fields))


def maintained(
    server: GPUServer, labels: dict[str, str] | None = None, *pods: PodView
) -> Maintenance:
    there = {view.owner: view for view in pods or [pod()]}
    return maintain([server], there, {"node-1": node(labels)})


@pytest.mark.parametrize(
    ("labels", "asks"),
    [
        ({}, False),
        ({CLIENT: "true", UPGRADE: "upgrade-done"}, False),
        ({UPGRADE: "upgrade-required"}, False),
        ({UPGRADE: "upgrade-failed"}, False),
        ({UPGRADE: "cordon-required"}, True),
        ({UPGRADE: "wait-for-jobs-required"}, True),
        ({UPGRADE: "pod-deletion-required"}, True),
        ({UPGRADE: "uncordon-required"}, True),
        ({UPGRADE: "a-state-of-a-later-release"}, True),
        ({CLIENT: "paused-for-driver-upgrade", UPGRADE: "upgrade-done"}, True),
        ({CLIENT: "paused-for-mig-change"}, True),
        ({CLIENT: "false"}, True),
    ],
)
def test_labels_that_ask_gpu_clients_to_leave_drain_the_gpus(labels: dict[str, str], asks: bool):  # noqa: FBT001
    server = a_server(allocations=ALLOCATED)
    assert maintained(server, labels) == Maintenance(drain=[server] if asks else [])


def test_the_server_pod_leaves_once_no_job_is_on_the_gpu():
    labels = {UPGRADE: "pod-deletion-required"}
    assert maintained(a_server(allocations=ALLOCATED, **OURS), labels) == Maintenance()
    there = pod()
    assert maintained(a_server(**OURS), labels, there) == Maintenance(leave=[there])
    assert maintained(a_server(**OURS), labels, pod(**DELETING)) == Maintenance()


def test_one_that_has_no_gpu_yet_leaves_at_once():
    starting = a_server(conditions={}, node="", status={"uuid": "", "memory": "0"})
    there = pod()
    assert maintained(starting, {CLIENT: "false"}, there) == Maintenance(leave=[there])


def test_no_other_gpu_is_taken_in_its_place_until_the_maintenance_is_over():
    gone = a_server(**OURS)
    assert plan_gpu_servers(a_partition(gpus=1), [gone], {}, {"node-1"}) == GPUServerChanges()
    assert maintain([gone], {}, {"node-1": node({CLIENT: "true"})}) == Maintenance(resume=[gone])


def test_maintenance_is_over_when_the_node_is_gone():
    gone = a_server(**OURS)
    assert maintain([gone], {}, {}) == Maintenance(resume=[gone])


def test_a_drain_that_somebody_asked_for_is_not_undone_but_its_pod_leaves():
    theirs = a_server(drainSince=SINCE)
    there = pod()
    assert maintained(theirs, {}, there) == Maintenance()
    assert maintained(theirs, {CLIENT: "false"}, there) == Maintenance(leave=[there])


def test_one_that_is_given_back_anyway_is_left_alone():
    assert maintained(a_server(metadata=DELETING), {CLIENT: "false"}) == Maintenance()


@pytest.mark.parametrize(
    ("allocations", "where", "protected"),
    [
        ({}, node(), True),
        ({}, None, True),
        ({}, node(cordoned=True), False),
        ({}, node({UPGRADE: "pod-deletion-required"}), False),
        (ALLOCATED, node(cordoned=True), True),
        (ALLOCATED, node({UPGRADE: "pod-deletion-required"}), True),
    ],
)
def test_a_server_pod_may_be_evicted_once_its_node_is_closed_and_the_last_job_has_left(
    allocations: dict[str, Any],
    where: NodeView | None,
    protected: bool,  # noqa: FBT001
):
    assert is_protected(a_server(allocations=allocations), where) is protected


@pytest.mark.parametrize("key", ["ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"])
def test_a_node_that_an_autoscaler_drains_is_closed_though_nobody_cordons_it(key: str):
    body = node_body()
    body["spec"]["taints"] = [{"key": key, "effect": "NoSchedule"}]
    assert not NodeView.parse(body).schedulable
