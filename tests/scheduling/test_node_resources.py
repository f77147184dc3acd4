"""What is left of the nodes' own CPU, memory and ephemeral storage, and who waits for it."""

from typing import Any

import pytest

from partita.pods.requests import Requests
from partita.scheduling.cycle import Cycle
from partita.scheduling.largest_capacity import LargestCapacity
from partita.scheduling.node_resources import left_on, offered
from partita.scheduling.partition_state import PartitionState
from partita.scheduling.reasons import Reason
from partita.scheduling.request import request_of_job
from partita.scheduling.resolved_request import resolve
from partita.scheduling.snapshot import gpus_of
from partita.scheduling.waiting_jobs import WaitingJobs
from partita_policies.capacity import FreeCapacity
from scheduling.cycles import NOW, first_fit, runner
from support.builders import (
    a_partition,
    a_state,
    allocation,
    gpus_up,
    job_body,
    node_body,
    partition_body,
    pod_body,
    pod_status,
    server_body,
    take,
)

GIB = 2**30


def template(cpu: str = "2", **spec: Any) -> dict[str, Any]:
    resources = {"requests": {"cpu": cpu, "memory": "4Gi"}}
    container = {"name": "main", "image": "train", "resources": resources}
    return {"spec": {"containers": [container], **spec}}


def job(name: str = "train", *, cpu: str = "2", **fields: Any) -> dict[str, Any]:
    return job_body(name, template=template(cpu), **fields)


def pod_of(name: str = "train", *, cpu: str = "2", **fields: Any) -> dict[str, Any]:
    body = pod_body(name, **fields)
    body["spec"] |= template(cpu)["spec"]
    return body


def foreign(cpu: str, *, node: str = "node-1", uid: str = "web") -> dict[str, Any]:
    return {
        "metadata": {"uid": uid, "name": uid, "namespace": "web", "resourceVersion": "1"},
        "spec": {"nodeName": node, **template(cpu)["spec"]},
        "status": {"phase": "Running"},
    }


def pool(*allocated: str, cpu: str = "8", servers: int = 2) -> Any:
    """Return GPUs on one node; on the first of them these jobs are allocated."""
    allocations = {f"claim-{name}": allocation(name) for name in allocated}
    up = gpus_up(
        *(server_body(f"shared-{n}", allocations={} if n else allocations) for n in range(servers))
    )
    state = a_state(partition_body(gpus=servers), *up)
    ample = {"cpu": cpu, "memory": "64Gi", "ephemeral-storage": "64Gi"}
    state.apply_node(node_body(allocatable=ample))
    return state


def left(state: Any, released: Any = None) -> Requests:
    return left_on(["node-1"], state, released or {})["node-1"]


def test_pods_of_everybody_take_from_a_node():
    state = pool()
    state.apply_pod(foreign("3"))
    assert left(state) == Requests(5000, 60 * GIB, 64 * GIB)


@pytest.mark.parametrize("node", ["", "node-1"])
def test_an_allocated_pod_takes_from_its_node_once_before_and_after_it_is_bound(node):
    state = pool("train")
    take(state, job())
    take(state, pod_of(node=node))
    assert left(state).cpu == 6000


def test_what_admission_has_made_of_a_pod_counts_once_it_is_there():
    state = pool("train")
    take(state, job())
    take(state, pod_of(cpu="3", node=""))
    assert left(state).cpu == 5000


def test_a_pod_that_is_over_takes_nothing_though_it_is_still_allocated():
    state = pool("train")
    take(state, job())
    take(state, pod_of(status=pod_status("Succeeded")))
    assert left(state).cpu == 8000
    (first, _) = gpus_of(a_partition(), state)
    assert first.running[0].cpu == 0


def test_the_pod_of_a_deleted_job_takes_from_the_node_until_it_is_gone():
    state = pool("train")
    body = job()
    take(state, body)
    take(state, pod_of())
    take(state, body, deleted=True)
    assert left(state).cpu == 6000
    take(state, pod_of(), deleted=True)
    assert left(state).cpu == 8000


def test_an_allocation_that_is_given_back_takes_nothing():
    state = pool("train")
    take(state, pod_of(node=""))
    assert left(state).cpu == 6000
    assert left(state, {"shared-0": {"claim-train"}}).cpu == 8000


def test_a_policy_sees_what_is_left_and_what_its_allocations_take():
    state = pool("train")
    take(state, job())
    state.apply_pod(foreign("3"))
    gpus = gpus_of(a_partition(), state)
    (node,) = offered(left_on(["node-1"], state, {}), gpus)
    assert (node.cpu, node.memory, node.storage) == (5000, 60 * GIB, 64 * GIB)
    assert FreeCapacity(gpus, [node]).hosts.left("node-1") == tuple(left(state))


def test_jobs_of_other_partitions_take_from_a_node_that_both_have_gpus_of():
    state = pool()
    other = server_body("other-0", partition="other", allocations={"claim-train": allocation()})
    take(state, other)
    take(state, job(partition="other"))
    take(state, pod_of(node=""))
    assert left(state).cpu == 6000


async def cycle(state: Any) -> Any:
    partition = state.partitions["shared"]
    largest = LargestCapacity().compute(partition, state)
    waiting = WaitingJobs()
    for uid, job in state.jobs.items():
        if not state.allocated(uid):
            waiting[uid] = resolve(request_of_job(job), partition, largest=largest)
    return await Cycle(
        partition,
        state,
        waiting=waiting,
        released={},
        memory=PartitionState(runner(first_fit)),
        now=NOW,
    ).run()


async def test_no_more_jobs_start_on_a_node_than_its_cpu_allows():
    state = pool(cpu="5")
    for name in ("a", "b", "c"):
        take(state, job(name))
    result = await cycle(state)
    assert sorted(placed.id for placed, _ in result.placed) == ["uid-a", "uid-b"]
    why = result.why["uid-c"]
    assert why.reason is Reason.INSUFFICIENT_NODE
    assert why.message == (
        "needs 2 CPUs of its node; the most that is free is 1 of 5 on node-1, "
        "and 2 of 2 GPUs of shared are on such nodes"
    )
    assert result.short == {"node-1"}


async def test_what_pods_of_others_have_is_not_given_to_a_job():
    state = pool()
    take(state, job(cpu="6"))
    state.apply_pod(foreign("3"))
    why = (await cycle(state)).why["uid-train"]
    assert "the most that is free is 5 of 8 on node-1" in why.message
    state.apply_pod(foreign("3"), deleted=True)
    assert [placed.id for placed, _ in (await cycle(state)).placed] == ["uid-train"]


async def test_nobody_waits_for_a_node_where_all_fit():
    state = pool()
    take(state, job())
    assert (await cycle(state)).short == frozenset()


async def test_a_job_gets_a_gpu_of_a_node_that_its_template_allows():
    bodies = gpus_up(server_body("shared-0"), server_body("shared-1", node="node-2"))
    state = a_state(partition_body(gpus=2), *bodies)
    state.apply_node(node_body("node-2", labels={"zone": "b"}))
    take(state, job_body(template=template(nodeSelector={"zone": "b"})))
    assert [where for _, where in (await cycle(state)).placed] == [("shared-1",)]


async def test_a_job_whose_node_has_no_ready_gpu_waits_for_it():
    bodies = gpus_up(server_body("shared-0"), server_body("shared-1", node="node-2"))
    state = a_state(partition_body(gpus=2), *bodies)
    state.apply_node(node_body("node-2", labels={"zone": "b"}, cordoned=True))
    take(state, job_body(template=template(nodeSelector={"zone": "b"})))
    why = (await cycle(state)).why["uid-train"]
    assert why.reason is Reason.NODE_NOT_ELIGIBLE
    assert why.message == "it can use only node-2, and no GPU there is ready"


def with_a_victim(cpu: str) -> Any:
    state = pool("low", servers=1)
    take(state, partition_body(preemption="LowerPriority", maxPriority=10))
    take(state, job("low", cpu=cpu))
    take(state, pod_of("low", cpu=cpu))
    return state


async def test_the_cpu_of_the_victims_counts_as_free_for_whom_they_make_room():
    state = with_a_victim("6")
    take(state, job("high", cpu="4", priority=9))
    result = await cycle(state)
    assert [v.job for p in result.preemptions for v in p.victims] == ["claim-low"]


async def test_nobody_is_preempted_for_a_job_that_its_node_cannot_take_then_either():
    state = with_a_victim("2")
    state.apply_pod(foreign("4"))
    take(state, job("high", cpu="5", priority=9))
    assert (await cycle(state)).preemptions == []
