"""A Pod whose creation gets no answer holds no GPU."""

from __future__ import annotations

import asyncio

from support.behind_proxy import Behind
from support.faults import CannedAnswer, Match
from support.polling import until
from support.requests import Request
from support.system import System

FAILING_HOOK = CannedAnswer(
    500,
    "InternalError",
    'Internal error occurred: failed calling webhook "pods.example.org": failed to call webhook: '
    'Post "https://hook.example.org": context deadline exceeded',
)


def creates_in(namespace: str) -> Match:
    """Match the creation of Pods in one namespace, dry runs as well."""

    def match(request: Request) -> bool:
        return request.kind == "POST pods" and request.target.namespace == namespace

    return match


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
