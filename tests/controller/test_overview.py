"""A partition's status: its GPUs, its queue, its policy."""

from datetime import datetime
from typing import Any

import pytest

from partita.controller.overview import partition_status
from partita.models import GPUPartition, GPUPartitionStatus
from partita.models.base import format_time
from partita.models.partition import PolicySpec
from partita.scheduling.runner import PolicyRunner
from partita.scheduling.state import State
from scheduling.builders import (
    DELETING,
    GIB,
    a_partition,
    a_state,
    allocation,
    at,
    gpus_up,
    job_body,
    node_body,
    server_body,
    server_pod_body,
    take,
)

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
    ledger = {"uid-train": allocation(memory=8 * GIB), "uid-two": allocation("two", memory=GIB)}
    state = a_state(*gpus_up(server_body(allocations=ledger), server_body("shared-1")))
    status = overview(state, a_partition(gpus=2))
    whole = 40 * 1024 * 93 // 100 << 20
    assert conditions(status) == {
        "Ready": ("True", "AllGPUsReady", "2 of 2 GPUs are ready"),
        "Progressing": ("False", "Settled", ""),
        "Degraded": ("False", "AsExpected", ""),
    }
    assert status.gpus == 2
    assert status.capacity is not None
    assert (status.capacity.gpus, status.capacity.memory, status.capacity.jobs) == (
        2,
        2 * whole,
        32,
    )
    assert status.allocated is not None
    assert (status.allocated.gpus, status.allocated.memory, status.allocated.jobs) == (
        1,
        9 * GIB,
        2,
    )
    assert [(g.name, g.node, g.state, g.jobs) for g in status.gpu_summary] == [
        ("shared-0", "node-1", "Ready", 2), ("shared-1", "node-1", "Ready", 0),
    ]  # fmt: skip
    assert (status.policy is not None and status.policy.active, status.shadow) == ("fifo", ())


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
    ],
)
def test_each_state_of_a_gpu(change: dict[str, Any], state: str, ready: str, message: str):
    partition = a_partition(gpuSelector={"products": ["NVIDIA-A100-SXM4-40GB"]})
    status = overview(a_state(*gpus_up(server_body(**change))), partition)
    assert [gpu.state for gpu in status.gpu_summary] == [state]
    found = conditions(status)
    assert found["Ready"][:2] == ("False", ready)
    assert message in found["Ready"][2]
    trouble = ready == "GPUsUnready"
    assert found["Degraded"][:2] == (
        ("True", "GPUsUnready") if trouble else ("False", "AsExpected")
    )
    assert status.gpus == 0


def test_a_gpu_without_its_node_or_its_server_pod_is_unready():
    no_node = a_state(server_body(), server_pod_body("shared-0"))
    no_pod = a_state(node_body(), server_body())
    cordoned = a_state(node_body(cordoned=True), server_body(), server_pod_body("shared-0"))
    down = a_state(node_body(ready=False), server_body(), server_pod_body("shared-0"))
    ended = a_state(node_body(), server_body(), server_pod_body("shared-0", phase="Failed"))
    for state in (no_node, no_pod, cordoned, down, ended):
        assert [gpu.state for gpu in overview(state).gpu_summary] == ["Unready"]


def test_gpus_that_are_not_there_yet_are_on_their_way():
    status = overview(a_state(*gpus_up(server_body())), a_partition(gpus=3))
    assert conditions(status)["Ready"] == ("False", "Starting", "1 of 3 GPUs are ready")
    assert conditions(status)["Progressing"] == (
        "True", "GPUsMoving", "2 GPUs start, 0 are given back",
    )  # fmt: skip


def test_a_partition_of_no_gpus_is_ready():
    assert conditions(overview(a_state(), a_partition(gpus=0)))["Ready"][0] == "True"


def test_the_queue():
    state = a_state(*gpus_up(server_body(allocations={"uid-runs": allocation("runs")})))
    for name, phase, suspend in (
        ("runs", "Running", False),
        ("waits", "Queued", False),
        ("new", None, False),
        ("paused", "Suspended", True),
        ("done", "Succeeded", False),
        ("broken", "Failed", False),
    ):
        take(state, job_body(name, suspend=suspend, status={"phase": phase} if phase else {}))
    take(state, job_body("elsewhere", partition="other"))
    queue = overview(state).queue
    assert queue is not None
    assert (queue.queued, queue.running, queue.suspended) == (2, 1, 1)


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
    def shown(self, **spec: Any) -> GPUPartitionStatus:
        policy = PolicySpec(**spec)
        partition = a_partition(policy=policy.dump())
        return overview(a_state(*gpus_up(server_body())), partition, PolicyRunner(policy))

    def test_one_that_decides(self):
        status = self.shown(name="tetris", shadow=("sjf",))
        assert conditions(status)["PolicyHealthy"] == ("True", "Deciding", "")
        assert status.policy is not None
        assert status.policy.active == "tetris"
        assert [shadow.name for shadow in status.shadow] == ["sjf"]

    def test_one_that_there_is_not(self):
        status = self.shown(name="best")
        healthy = conditions(status)["PolicyHealthy"]
        assert healthy[:2] == ("False", "FallbackDecides")
        assert "best" in healthy[2]
        assert conditions(status)["Degraded"][:2] == ("True", "PolicyFailed")
        assert status.policy is not None
        assert status.policy.active == "fifo"

    def test_a_wrong_parameter_is_named(self):
        status = self.shown(name="fifo", parameters={"speed": 9})
        assert "speed" in conditions(status)["PolicyHealthy"][2]

    def test_a_shadow_that_there_is_not_leaves_the_policy_in_charge(self):
        status = self.shown(name="sjf", shadow=("best",))
        healthy = conditions(status)["PolicyHealthy"]
        assert healthy[:2] == ("False", "PolicyUnavailable")
        assert status.policy is not None
        assert status.policy.active == "sjf"

    def test_the_failure_of_the_last_cycle(self):
        runner = PolicyRunner(PolicySpec(name="sjf"))
        runner.failure, runner.active = "policy sjf raised KeyError: 3", "fifo"
        status = overview(a_state(*gpus_up(server_body())), None, runner)
        assert conditions(status)["PolicyHealthy"] == (
            "False", "FallbackDecides", "policy sjf raised KeyError: 3",
        )  # fmt: skip


def test_of_a_thousand_gpus_in_trouble_as_many_are_named_as_a_condition_holds():
    names = [f"{'a' * 47}-{number}" for number in range(1000)]
    unready = [server_body(name, conditions={"Ready": "False"}) for name in names]
    status = overview(a_state(*unready), a_partition(gpus=1000))
    for kind in ("Ready", "Degraded"):
        message = conditions(status)[kind][2]
        assert len(message) == 32768
        assert message.endswith("...")
