"""A partition's status: its GPUs, its queue, its policy."""

from collections import deque
from datetime import datetime
from typing import Any

import pytest

from partita.models import GPUPartition, GPUPartitionStatus
from partita.models.partition import PolicySpec
from partita.models.partition_status import Capacity
from partita.models.quantities import format_time
from partita.partitions.partition_status import partition_status
from partita.partitions.unavailable_gpus import StuckPods
from partita.scheduling.policy_runner import PolicyRunner
from partita.store.state import State
from partita_policies.start_times.calibration import Accuracy
from partita_policies.start_times.wait_change import WaitChange
from support.builders import (
    DELETING,
    GIB,
    a_partition,
    a_state,
    allocation,
    at,
    gpus_up,
    job_body,
    node_body,
    owner,
    server_body,
    server_pod_body,
    take,
)
from support.claims import claim_body, claim_entry

EMPTY = {"node": "", "conditions": {}, "status": {"uuid": "", "memory": "0"}}


def overview(
    state: State,
    partition: GPUPartition | None = None,
    runner: PolicyRunner | None = None,
    now: datetime | None = None,
) -> GPUPartitionStatus:
    return partition_status(partition or a_partition(), state, runner, now or at(0))


def conditions(status: GPUPartitionStatus) -> dict[str, tuple[str, str, str]]:
    return {c.type: (c.status, c.reason, c.message) for c in status.conditions}


def test_a_partition_whose_gpus_are_ready():
    ledger = {"claim-train": allocation(memory=8 * GIB), "claim-two": allocation("two", memory=GIB)}
    limited = server_body("shared-1", status={"enforcement": "Driver"})
    state = a_state(*gpus_up(server_body(allocations=ledger), limited))
    status = overview(state, a_partition(gpus=2))
    whole = 40 * 1024 * 93 // 100 << 20
    assert conditions(status) == {
        "Ready": ("True", "AllGPUsReady", "2 of 2 GPUs are ready"),
        "Progressing": ("False", "Settled", ""),
        "Degraded": ("False", "AsExpected", ""),
    }
    assert status.gpus == 2
    assert status.capacity == Capacity(gpus=2, memory=2 * whole, jobs=32)
    assert status.allocated == Capacity(gpus=1, memory=9 * GIB, jobs=2)
    assert [(g.name, g.node, g.state, g.jobs, g.enforcement) for g in status.gpu_summary] == [
        ("shared-0", "node-1", "Ready", 2, None), ("shared-1", "node-1", "Ready", 0, "Driver"),
    ]  # fmt: skip
    assert (status.policy is not None and status.policy.active, status.shadow) == ("fifo", ())


PROTECTED = {**allocation("b"), "notEvicted": "budget two needs 1 healthy pods"}


@pytest.mark.parametrize(
    ("change", "state", "ready", "message"),
    [
        ({"conditions": {"Ready": "False"}}, "Unready", "GPUsUnready", "shared-0 is Unready"),
        ({"conditions": {"Ready": "True", "Faulted": "True"}}, "Faulted", "GPUsUnready", "Faulted"),
        ({"status": {"product": "T4"}}, "Mismatched", "GPUsUnready", "shared-0 is Mismatched"),
        ({"mode": "Exclusive"}, "Mismatched", "GPUsUnready", "shared-0 is Mismatched"),
        (EMPTY, "Starting", "Starting", "0 of 1 GPUs are ready"),
        ({"metadata": DELETING}, "Draining", "Draining", "0 of 1 GPUs are ready"),
        ({"drainSince": format_time(at(0))}, "Drained", "Drained", "shared-0 is Drained"),
        ({"drainSince": format_time(at(0)), "allocations": {"a": allocation("a")}}, "Drained",
         "Drained", "1 Pod uses it: see `kubectl describe gpuserver shared-0`"),
        ({"drainSince": format_time(at(0)), "allocations": {"a": allocation("a"), "b": PROTECTED}},
         "Drained", "Drained", "2 Pods use it, and budgets protect 1 of these from eviction: see"),
    ],
)  # fmt: skip
def test_each_state_of_a_gpu(change: dict[str, Any], state: str, ready: str, message: str):
    partition = a_partition(gpuSelector={"products": ["NVIDIA-A100-SXM4-40GB"]})
    status = overview(a_state(*gpus_up(server_body(**change))), partition)
    assert [gpu.state for gpu in status.gpu_summary] == [state]
    found = conditions(status)
    assert found["Ready"][:2] == ("False", ready)
    assert message in found["Ready"][2]
    trouble = ("True", "GPUsUnready") if ready == "GPUsUnready" else ("False", "AsExpected")
    assert found["Degraded"][:2] == trouble
    assert status.gpus == 0


def test_a_gpu_without_its_node_or_its_server_pod_is_unready():
    no_node = a_state(server_body(), server_pod_body("shared-0"))
    no_pod = a_state(node_body(), server_body())
    cordoned = a_state(node_body(cordoned=True), server_body(), server_pod_body("shared-0"))
    down = a_state(node_body(ready=False), server_body(), server_pod_body("shared-0"))
    ended = a_state(node_body(), server_body(), server_pod_body("shared-0", phase="Failed"))
    for state in (no_node, no_pod, cordoned, down, ended):
        assert [gpu.state for gpu in overview(state).gpu_summary] == ["Unready"]


def test_a_gpu_whose_probe_pod_does_not_start_says_why():
    of_server = [owner("GPUServer", "shared-0")]
    probe = server_pod_body("shared-0-probe", ownerReferences=of_server)
    waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
    statuses = [{"name": "probe", "state": {"waiting": waiting}}]
    probe["status"] = {"phase": "Pending", "containerStatuses": statuses}
    unknown = {"capabilities": {"limitHook": "Unknown"}}
    gpu = server_body(conditions={"Ready": "False"}, status=unknown)
    (summary,) = overview(a_state(*gpus_up(gpu), probe)).gpu_summary
    assert summary.state == "Unready"
    assert "its probe Pod partita-system/shared-0-probe does not start" in summary.message
    assert "no such image" in summary.message


def test_gpus_that_are_not_there_yet_are_on_their_way():
    status = overview(a_state(*gpus_up(server_body())), a_partition(gpus=3))
    assert conditions(status)["Ready"] == ("False", "Starting", "1 of 3 GPUs are ready")
    moving = ("True", "GPUsMoving", "2 GPUs start, 0 are released")
    assert conditions(status)["Progressing"] == moving


def test_a_partition_of_no_gpus_is_ready():
    assert conditions(overview(a_state(), a_partition(gpus=0)))["Ready"][0] == "True"


def test_the_queue():
    ledger = {"claim-runs": allocation("runs"), "uid-served": claim_entry("served")}
    state = a_state(*gpus_up(server_body(allocations=ledger)))
    take(state, job_body("new"))
    for phase in ("Queued", "Suspended", "Succeeded", "Failed"):
        take(state, job_body(phase.lower(), suspend=phase == "Suspended", status={"phase": phase}))
    take(state, job_body("runs", status={"phase": "Running"}))
    take(state, job_body("elsewhere", partition="other"))
    told = {"annotations": {"partita.dev/status": "NoPod: no Pod uses it"}}
    state.queues.partition_statuses.take()
    for name, metadata in (("untold", {}), ("told", told), ("served", told)):
        take(state, claim_body(name, metadata=metadata))
    assert state.queues.partition_statuses.take() == {"shared"}
    queue = overview(state).queue
    assert (queue.queued, queue.running, queue.suspended) == (3, 2, 1)


def test_a_condition_keeps_its_time_until_its_status_changes():
    up, down = a_state(*gpus_up(server_body())), a_state(server_body())
    first = overview(up, now=at(0))
    partition = a_partition().model_copy(update={"status": first})
    second = overview(up, partition, now=at(50))
    assert [c.last_transition_time for c in second.conditions] == [at(0)] * 3
    third = overview(down, partition, now=at(90))
    times = {c.type: c.last_transition_time for c in third.conditions}
    assert times == {"Ready": at(90), "Progressing": at(0), "Degraded": at(90)}


class TestPolicies:
    async def shown(self, **spec: Any) -> GPUPartitionStatus:
        runner = PolicyRunner(PolicySpec(**spec))
        await runner.build()
        for shadow in runner.shadow_counts.values():
            shadow.waits = WaitChange(jobs=2, seconds=-30.0)
        partition, state = a_partition(policy=runner.spec.dump()), a_state(*gpus_up(server_body()))
        starts = Accuracy(4, 3, errors=deque([9.0]), widths=deque([60.0, 20.0]))
        return partition_status(partition, state, runner, at(0), starts=starts)

    async def test_one_that_decides(self):
        status = await self.shown(name="tetris", shadow=("sjf",))
        assert conditions(status)["PolicyHealthy"] == ("True", "Deciding", "")
        assert status.policy.active == "tetris"
        (shadow,) = status.shadow
        assert (shadow.name, shadow.estimated, shadow.wait_change) == ("sjf", 2, -15)
        said = {"started": 4, "held": 3, "medianWidth": "40s", "medianError": "9s"}
        assert status.dump()["estimatedStarts"] == said

    async def test_one_that_there_is_not(self):
        status = await self.shown(name="best")
        healthy = conditions(status)["PolicyHealthy"]
        assert healthy[:2] == ("False", "FallbackDecides")
        assert "best" in healthy[2]
        assert conditions(status)["Degraded"][:2] == ("True", "PolicyFailed")
        assert status.policy.active == "fifo"

    async def test_a_shadow_that_there_is_not_leaves_the_policy_in_charge(self):
        status = await self.shown(name="sjf", shadow=("best",))
        healthy = conditions(status)["PolicyHealthy"]
        assert healthy[:2] == ("False", "PolicyUnavailable")
        assert status.policy.active == "sjf"

    def test_the_failure_of_the_last_cycle(self):
        runner = PolicyRunner(PolicySpec(name="sjf"))
        runner.failure, runner.active = "policy sjf raised KeyError: 3", "fifo"
        status = overview(a_state(*gpus_up(server_body())), None, runner)
        failed = ("False", "FallbackDecides", "policy sjf raised KeyError: 3")
        assert conditions(status)["PolicyHealthy"] == failed


def test_of_a_thousand_gpus_in_trouble_as_many_are_named_as_a_condition_holds():
    names = [f"{'a' * 47}-{number}" for number in range(1000)]
    unready = [server_body(name, conditions={"Ready": "False"}) for name in names]
    status = overview(a_state(*unready), a_partition(gpus=1000))
    for kind in ("Ready", "Degraded"):
        message = conditions(status)[kind][2]
        assert len(message) == 32768
        assert message.endswith("...")


WORDS = "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector."
UNSCHEDULABLE = {
    "phase": "Pending",
    "conditions": [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": WORDS}
    ],
}


def pending(server: str, status: dict[str, Any], node: str = "") -> dict[str, Any]:
    body: dict[str, Any] = server_pod_body(server, node=node, phase="Pending")
    body["status"] = status
    return body


def labelled(name: str, product: str) -> dict[str, Any]:
    body: dict[str, Any] = node_body(name)
    body["metadata"]["labels"] = {"nvidia.com/gpu.product": product}
    return body


def test_server_pods_that_no_node_takes_are_told_with_the_products_that_there_are():
    state = a_state(
        labelled("n1", "NVIDIA-H200"),
        labelled("n2", "NVIDIA-H200"),
        labelled("n3", "Tesla-T4"),
        *(server_body(f"shared-{n}", **EMPTY) for n in range(5)),
        *(pending(f"shared-{n}", UNSCHEDULABLE) for n in range(5)),
    )
    status = overview(state, a_partition(gpus=5, gpuSelector={"products": ["NVIDIA-B300"]}))
    found = conditions(status)
    assert found["Ready"][:2] == ("False", "Unschedulable")
    assert found["Degraded"][:2] == ("True", "Unschedulable")
    assert found["Degraded"][2] == (
        "shared-0, shared-1, shared-2 and 2 more cannot start: no node takes the Pod: "
        f"{WORDS} No node has NVIDIA-B300. GPU products of the nodes: NVIDIA-H200 (2 nodes), Tesla-T4 "
        "(1 node). "
        "To go on, change spec.gpuSelector.products, add GPUs, free some, or lower spec.gpus"
    )
    assert {gpu.message for gpu in status.gpu_summary} == {f"no node takes the Pod: {WORDS}"}


def test_nodes_without_the_label_of_their_product_are_told_of():
    state = a_state(node_body(), server_body(**EMPTY), pending("shared-0", UNSCHEDULABLE))
    message = conditions(overview(state))["Degraded"][2]
    assert "No node has the label nvidia.com/gpu.product" in message
    assert "To go on, add GPUs, free some, or lower spec.gpus" in message


def test_a_server_pod_whose_image_cannot_be_pulled_says_so():
    waiting = {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}
    statuses = [{"name": "agent", "state": {"waiting": waiting}}]
    status = {"phase": "Pending", "containerStatuses": statuses}
    state = a_state(node_body(), server_body(**EMPTY), pending("shared-0", status, "node-1"))
    found = conditions(overview(state))
    assert found["Ready"][:2] == ("False", "ServerPodsStuck")
    assert found["Degraded"][:2] == ("True", "ServerPodsStuck")
    assert "ImagePullBackOff: Back-off pulling image" in found["Degraded"][2]


def test_server_pods_that_the_api_server_refuses_say_so():
    refused = StuckPods("ServerPodsRefused", "create pods partita-servers/shared-0: 403")
    state = a_state(node_body(), server_body(**EMPTY))
    status = partition_status(a_partition(), state, None, at(0), refused)
    assert conditions(status)["Degraded"] == ("True", refused.reason, refused.message)


def test_server_pods_whose_claims_find_no_gpu_say_what_to_change():
    said = "0/3 nodes are available: 3 cannot allocate all claims."
    condition = UNSCHEDULABLE["conditions"][0] | {"message": said}
    status = {"phase": "Pending", "conditions": [condition]}
    state = a_state(node_body(), server_body(**EMPTY), pending("shared-0", status))
    partition = a_partition(gpuSource="DRA", gpuSelector={"minMemory": "80Gi"})
    found = conditions(partition_status(partition, state, None, at(0)))["Degraded"]
    assert found[:2] == ("True", "InsufficientGPUs")
    assert said.rstrip(".") in found[2]
    assert "kubectl get resourceslices" in found[2]
    assert "change spec.gpuSelector.minMemory" in found[2]


def test_one_that_just_starts_is_no_trouble():
    pod = pending("shared-0", {"phase": "Pending"}, "node-1")
    state = a_state(node_body(), server_body(**EMPTY), pod)
    assert conditions(overview(state))["Degraded"][:2] == ("False", "AsExpected")


def test_a_cordoned_node_and_one_under_maintenance_are_told_of():
    cordoned = a_state(node_body(cordoned=True), server_body(), server_pod_body("shared-0"))
    assert "`kubectl uncordon node-1`" in conditions(overview(cordoned))["Ready"][2]
    upgrading = node_body()
    upgrading["metadata"]["labels"] = {"nvidia.com/gpu-driver-upgrade-state": "drain-required"}
    drained = server_body(drainSince=format_time(at(0)), drainReason="NodeMaintenance")
    found = conditions(overview(a_state(upgrading, drained, server_pod_body("shared-0"))))
    assert found["Ready"][:2] == ("False", "Drained")
    assert "nvidia.com/gpu-driver-upgrade-state=drain-required" in found["Ready"][2]
    assert found["Degraded"][0] == "False"
