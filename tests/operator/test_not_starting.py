"""Pods that do not start: Kubernetes' reason is told, the GPU is released, others go on."""

from __future__ import annotations

import asyncio

from support.behind_proxy import Behind
from support.faults import CannedAnswer, Match
from support.polling import until
from support.queues import LONG
from support.requests import Request
from support.system import System

FAILING_HOOK = CannedAnswer(
    500,
    "InternalError",
    'Internal error occurred: failed calling webhook "pods.example.org": failed to call webhook: '
    'Post "https://hook.example.org": context deadline exceeded',
)
OVER_QUOTA = CannedAnswer(403, "Forbidden", "exceeded quota: compute, requested: pods=1")


def creates_in(namespace: str) -> Match:
    """Match the creation of Pods in one namespace, dry runs as well."""

    def match(request: Request) -> bool:
        return request.kind == "POST pods" and request.target.namespace == namespace

    return match


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


async def test_while_a_webhook_does_not_answer_others_get_the_gpu(
    system: System, behind: Behind
) -> None:
    async with behind(1) as proxy:
        partition = await system.partition()
        await system.ready(partition)
        elsewhere = await system.another_namespace()
        answers = asyncio.Event()
        slow = proxy.inject(
            creates_in(elsewhere), times=None, hook=lambda _: answers.wait(), answer=FAILING_HOOK
        )
        stuck = [
            await system.job(f"stuck-{n}", partition, namespace=elsewhere, gpuMemory="30Gi")
            for n in range(3)
        ]
        await until(lambda: slow.happened)
        other = await system.job("next", partition, gpuMemory="30Gi")
        await other.succeeds()
        assert slow.happened == 1  # the others of its namespace wait, and reserve nothing
        proxy.remove(slow)
        answers.set()
        for job in stuck:
            await job.succeeds()


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
