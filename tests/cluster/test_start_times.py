"""How long the Pod of a claim takes from its allocation until its container runs."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from cluster.gpus import NodeGPUs
from cluster.jobs import Jobs
from cluster.pods import phase
from cluster.workloads import Workloads
from support.api import Api

STEPS = ("fake-cuda", "alloc:900", "compute:500")
"""It ends by itself: after a program that was killed, the agent first checks MPS."""

LIMIT_SECONDS = 1800
"""Time enough for 300 Pods on a busy machine."""

Json = dict[str, Any]


def is_allocated(claim: Json) -> Any:
    return claim.get("status", {}).get("allocation")


def is_bound(pod: Json) -> Any:
    return pod["spec"].get("nodeName")


def has_sandbox(pod: Json) -> bool:
    """Say whether its claim is prepared and its sandbox is there."""
    conditions = pod["status"].get("conditions", ())
    return any(
        c["type"] == "PodReadyToStartContainers" and c["status"] == "True" for c in conditions
    )


def runs(pod: Json) -> bool:
    return any("running" in s["state"] for s in pod["status"].get("containerStatuses", ()))


@pytest.mark.timeout(LIMIT_SECONDS, func_only=True)
@pytest.mark.parametrize("what", ["Pod", "SharedGPUJob"])
async def test_the_time_from_allocation_to_running_is_told(
    what: str,
    gpus: NodeGPUs,
    api: Api,
    workloads: Workloads,
    jobs: Jobs,
    tell: Callable[[str], None],
    pytestconfig: pytest.Config,
):
    """One after the other; the times are those at which a watch brings the changes."""
    count = pytestconfig.getoption("--starts")
    times = []
    for number in range(count):
        name = f"start-{number}"
        if what == "Pod":
            start = workloads.make("Pod", name, *STEPS)
            times.append(await _times(api, workloads, name, start))
            await workloads.delete("Pod", name)
        else:
            start = jobs.submit(name, *STEPS[1:], memory="1Gi")
            times.append(await _times(api, workloads, f"{name}-1", start))
            await jobs.delete(name)
    steps = ("bound", "prepared, with a sandbox", "running")
    for number, step in enumerate(steps):
        since = sorted(each[number] for each in times)
        last = since[min(count - 1, round(0.99 * count))]
        whose = "its Pod" if what == "Pod" else "the Pod of its SharedGPUJob"
        tell(
            f"From the allocation of a claim until {whose} is {step}: median "
            f"{statistics.median(since):.2f} s, p99 {last:.2f} s ({count} Pods)"
        )


async def _times(
    api: Api, workloads: Workloads, pod_name: str, start: Awaitable[None]
) -> list[float]:
    """Start a Pod; return the seconds from its allocation to each of the following steps."""
    found: dict[str, float] = {}
    async with (
        api.watch(workloads.path("Pod"), fieldSelector=f"metadata.name={pod_name}") as pods,
        api.watch(workloads.claims_path) as claims,
    ):
        clock = asyncio.get_running_loop().time

        async def follow_claim() -> None:
            while True:
                _, claim = await claims.next(None)
                meta = claim["metadata"]
                owners = [owner["name"] for owner in meta.get("ownerReferences", ())]
                of_pod = pod_name in owners or meta["name"].startswith(f"{pod_name}.")
                if is_allocated(claim) and of_pod:
                    found["allocated"] = clock()
                    return

        async def follow_pod() -> None:
            ended = False
            while not ended:
                _, pod = await pods.next(None)
                for step, holds in (
                    ("bound", is_bound),
                    ("sandbox", has_sandbox),
                    ("running", runs),
                ):
                    if holds(pod):
                        found.setdefault(step, clock())
                ended = phase(pod) == "Succeeded"

        await start
        await asyncio.gather(follow_claim(), follow_pod())
    return [found[step] - found["allocated"] for step in ("bound", "sandbox", "running")]
