"""Pods that do not start: Kubernetes' reason is told, the GPU is released, others go on."""

from __future__ import annotations

import pytest

from support.behind_proxy import Behind
from support.operator import NOWHERE, Job, System
from support.proxy import CannedAnswer, Match, Request
from support.queues import LONG
from support.record import Body

SOON = {"podStartTimeout": "3s", "retry": {"notStarted": {"limit": 0}}}
"""One attempt, which is given up at once: the job itself asks for that, so that others have
their time on a slow machine."""
FAILING_HOOK = CannedAnswer(
    500,
    "InternalError",
    'Internal error occurred: failed calling webhook "pods.example.org": failed to call webhook: '
    'Post "https://hook.example.org": context deadline exceeded',
)
OVER_QUOTA = CannedAnswer(403, "Forbidden", "exceeded quota: compute, requested: pods=1")
POLICY = CannedAnswer(
    422,
    "Invalid",
    "pods \"train-1\" is forbidden: ValidatingAdmissionPolicy 'no-friday' with binding 'all' "
    "denied request: not today",
)


def creates_in(namespace: str) -> Match:
    """Match the creation of Pods in one namespace, dry runs as well."""

    def match(request: Request) -> bool:
        return request.kind == "POST pods" and request.target.namespace == namespace

    return match


def reasons(job: Job) -> list[str]:
    """Kubernetes' reasons for which its attempts did not start."""
    return [attempt.get("reason", "") for attempt in job.status["attempts"]]


def claims_of(system: System) -> list[Body]:
    """The claims in the namespace of the jobs."""
    return system.history.all("resourceclaims", system.namespace)


WAYS = {
    "Unschedulable": {"pod": {"affinity": NOWHERE}},
    "ImagePullBackOff": {"sim": {"not_starting": "ImagePullBackOff"}},
}


@pytest.mark.parametrize("reason", WAYS)
async def test_a_gpu_that_waits_for_a_pod_in_vain_goes_to_the_next_job(
    system: System, reason: str
) -> None:
    async with system.running(1):
        partition = await system.partition()
        job = await system.job("stuck", partition, gpuMemory="30Gi", **SOON, **WAYS[reason])
        await job.until(lambda s: s.get("phase") == "Assigned" and s.get("reason") == reason)
        other = await system.job("next", partition, gpuMemory="30Gi")
        await other.succeeds()
        status = await job.fails()
        assert (status["reason"], job.outcomes) == ("NotStarted", ["NotStarted"])
        assert reasons(job) == [reason]
        assert "retry.notStarted.limit: 0" in status["message"]


async def test_a_claim_that_is_deleted_while_its_pod_waits_is_created_again(
    system: System,
) -> None:
    async with system.running(1):
        partition = await system.partition()
        pod = {"schedulingGates": [{"name": "example.org/budget"}]}
        job = await system.job("train", partition, gpuMemory="4Gi", pod=pod)
        status = await job.until(lambda s: s.get("reason") == "SchedulingGated")
        assert [attempt["number"] for attempt in status["attempts"]] == [1]
        (first,) = claims_of(system)
        claims = f"/apis/resource.k8s.io/v1/namespaces/{system.namespace}/resourceclaims"
        (await system.api.delete(f"{claims}/{first['metadata']['name']}")).ok()

        def another() -> bool:
            return any(
                claim["metadata"]["uid"] != first["metadata"]["uid"]
                and claim.get("status", {}).get("allocation")
                for claim in claims_of(system)
            )

        await system.history.until(another, what=lambda: [*claims_of(system), *system.logs[-20:]])
        path = f"/api/v1/namespaces/{system.namespace}/pods/train-1"
        (await system.api.patch(path, {"spec": {"schedulingGates": None}})).ok()
        await job.succeeds()
        assert job.outcomes == ["Succeeded"]


async def test_it_is_queued_again_and_counts_as_nobody_s_failure(system: System) -> None:
    async with system.running(1):
        partition = await system.partition(podStartTimeout="2s")
        pod = {"schedulingGates": [{"name": "example.org/budget"}]}
        retry = {"limit": 0, "notStarted": {"limit": 5}}
        job = await system.job("train", partition, gpuMemory="4Gi", pod=pod, retry=retry)
        await job.until(lambda s: len(s.get("attempts", [])) == 2)
        path = f"/api/v1/namespaces/{system.namespace}/pods/train-2"
        await system.history.until(lambda: job.pod(2))
        (await system.api.patch(path, {"spec": {"schedulingGates": None}})).ok()
        await job.succeeds()
        assert job.outcomes == ["NotStarted", "Succeeded"]


async def test_a_webhook_that_fails_in_one_namespace_holds_up_that_namespace_alone(
    system: System, behind: Behind
) -> None:
    async with behind(1) as proxy:
        partition = await system.partition()
        await system.ready(partition)
        elsewhere = await system.another_namespace()
        fault = proxy.inject(creates_in(elsewhere), times=None, answer=FAILING_HOOK)
        names = [f"stuck-{n}" for n in range(3)]
        stuck = [
            await system.job(name, partition, namespace=elsewhere, gpuMemory="30Gi", priority=5)
            for name in names
        ]
        for job in stuck:
            await job.waits("AdmissionWebhookFailed", "pods.example.org", "next try at")
        other = await system.job("next", partition, gpuMemory="30Gi")
        await other.succeeds()
        assert fault.happened
        proxy.remove(fault)
        for job in stuck:
            await job.succeeds()
            assert job.outcomes == ["Succeeded"]


async def test_a_webhook_that_does_not_answer_holds_up_no_cycle(
    system: System, behind: Behind
) -> None:
    async with behind(2) as proxy:
        partition = await system.partition(gpus=2)
        await system.ready(partition, 2)
        elsewhere = await system.another_namespace()
        slow = proxy.inject(creates_in(elsewhere), times=None, delay=8, answer=FAILING_HOOK)
        job = await system.job("stuck", partition, namespace=elsewhere, gpuMemory="30Gi")
        await system.history.until(
            lambda: any(s.get("status", {}).get("allocations") for s in system.servers(partition))
        )
        other = await system.job("next", partition, gpuMemory="30Gi")
        await other.succeeds()
        assert slow.happened <= 1  # that of the first job has not even been answered
        proxy.remove(slow)
        await job.succeeds()


async def test_a_denial_by_a_policy_is_told_and_tried_again(system: System, behind: Behind) -> None:
    async with behind(1) as proxy:
        partition = await system.partition()
        await system.ready(partition)
        fault = proxy.inject(creates_in(system.namespace), times=6, answer=POLICY)
        job = await system.job("train", partition, gpuMemory="4Gi")
        await job.waits("PodForbidden", "ValidatingAdmissionPolicy no-friday", "not today")
        await job.succeeds()
        assert (fault.happened, job.outcomes) == (6, ["Succeeded"])
        await system.history.until(
            lambda: "PodForbidden" in [reason for reason, _ in system.history.events("train")]
        )


async def test_nobody_is_preempted_for_a_pod_that_a_quota_refuses(
    system: System, behind: Behind
) -> None:
    async with behind(1) as proxy:
        partition = await system.partition(preemption="LowerPriority", maxPriority=1000)
        await system.ready(partition)
        low = await system.job("low", partition, gpuMemory="30Gi", sim=LONG)
        await low.runs()
        elsewhere = await system.another_namespace()
        fault = proxy.inject(creates_in(elsewhere), times=None, answer=OVER_QUOTA)
        high = await system.job(
            "high", partition, namespace=elsewhere, gpuMemory="30Gi", priority=1000
        )
        await high.waits("PodForbidden", "exceeded quota")
        await system.history.until(lambda: fault.happened >= 3)  # it is asked again and again
        assert low.outcomes == [""]
        proxy.remove(fault)
        await low.until(lambda s: s["attempts"][0].get("outcome") == "Preempted")
        await high.succeeds()


async def test_an_allocation_whose_pod_cannot_be_created_ends_in_time(
    system: System, behind: Behind
) -> None:
    async with behind(1) as proxy:
        partition = await system.partition()
        await system.ready(partition)
        conflict = CannedAnswer(409, "Conflict", "the quota has been modified")
        fault = proxy.inject(creates_in(system.namespace), times=None, answer=conflict)
        job = await system.job("train", partition, gpuMemory="30Gi", **SOON)
        await job.fails()
        assert (job.outcomes, reasons(job)) == (["NotStarted"], ["PodNotCreated"])
        assert "409 the quota has been modified" in job.status["attempts"][0]["message"]
        proxy.remove(fault)
        await (await system.job("next", partition, gpuMemory="30Gi")).succeeds()


async def test_a_pod_that_cannot_go_on_a_node_that_does_not_answer_is_lost(
    system: System,
) -> None:
    async with system.running(1, 1):
        partition = await system.partition(gpus=2)
        await system.ready(partition, 2)
        job = await system.job("train", partition, gpuMemory="30Gi", podStartTimeout="3s", sim=LONG)
        await job.runs()
        node = job.status["assignment"]["node"]
        pods = f"/api/v1/namespaces/{system.namespace}/pods/train-1"
        # A Pod that nobody confirms to have ended: as after a node's loss.
        (await system.api.patch(pods, {"metadata": {"finalizers": ["example.org/kubelet"]}})).ok()
        await answers(system, node, says="Unknown")
        await job.until(lambda s: (s["phase"], s.get("reason")) == ("Running", "NodeNotReady"))
        (await system.api.delete(pods, {"gracePeriodSeconds": 1})).ok()
        await job.until(lambda s: (s["phase"], s.get("reason")) == ("Assigned", "NodeNotReady"))
        await job.waits("Ending", "NodeLost", f"node {node} is not ready", "out-of-service")
        assert job.outcomes == ["NodeLost"]
        # The other GPU is free, and yet it is not started there: it may still run here.
        assert system.history.left_over()
        assert job.pod(2) is None
        (await system.api.patch(pods, {"metadata": {"finalizers": None}})).ok()
        await job.runs(2)
        assert job.status["assignment"]["node"] != node


async def answers(system: System, node: str, *, says: str) -> None:
    """Have a Node say whether its kubelet answers, as the node controller does."""
    ready = {"type": "Ready", "status": says, "reason": "NodeStatusUnknown"}
    patch = {"status": {"conditions": [ready]}}
    (await system.api.patch(f"/api/v1/nodes/{node}/status", patch)).ok()
