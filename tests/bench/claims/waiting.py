"""What Pods that wait for their claims cost kube-scheduler and the operator."""

from __future__ import annotations

import asyncio
import itertools
import statistics

from bench.claims.plane import PlaneWithScheduler, process_ids
from bench.claims.pods import Kubelet, SettledClaims, claim_pod, fill_nodes, make_template
from bench.load.figures import Figure
from bench.load.stage import SUBMITTERS, Stage, Tell, on_stage, partition_of
from bench.scale.meters import usage
from bench.scale.partitions import make_partitions
from bench.scale.shape import CAPACITY

__all__ = ["waiting"]

GPUS = 4
NAMESPACE = "crowd"
MEASURED = ("kube-scheduler", "operator", "kube-controller-manager", "kube-apiserver")
TURNOVER_SECONDS = 60
EVERY = 1.0
"""Seconds between two Pods that end, so that others start, in the second half."""


def waiting(pods: int, *, gated: bool, tell: Tell) -> list[Figure]:
    """Submit many Pods with claims to a few GPUs; return the processor time of each process.

    Once until each has its GPU or says why it waits, and then for a minute in which Pods end.
    """

    async def play(stage: Stage) -> list[Figure]:
        pids = {"operator": await stage.start_operator(), **process_ids(stage.plane)}
        await fill_nodes(stage.api, GPUS)
        await make_partitions(stage.api, [partition_of("shared", gpus=GPUS)])
        await make_template(stage.api, NAMESPACE, "shared", "1Gi")
        kubelet = Kubelet(stage, NAMESPACE)
        claims = SettledClaims(stage, kubelet)
        stage.beside(kubelet.run())
        stage.beside(claims.run())
        before = {name: usage(pid).cpu for name, pid in pids.items()}
        await submit(stage, pods, gated=gated)
        await stage.until("Pods that run", lambda: len(kubelet.bound), min(pods, GPUS * CAPACITY))
        await stage.until("claims that say why they wait", lambda: len(claims.names), pods)
        submitted = {name: usage(pid).cpu for name, pid in pids.items()}
        turnover = stage.beside(kubelet.turn_over(EVERY))
        await asyncio.sleep(TURNOVER_SECONDS)
        turnover.cancel()
        after = {name: usage(pid) for name, pid in pids.items()}
        return [
            *(
                Figure(f"until all wait: CPU of {name}", submitted[name] - before[name], "s")
                for name in MEASURED
            ),
            *(
                Figure(
                    f"a minute, one Pod ends each second: CPU of {name}",
                    after[name].cpu - submitted[name],
                    "s",
                )
                for name in MEASURED
            ),
            *turned_over(kubelet, claims),
            Figure("peak memory of kube-scheduler", after["kube-scheduler"].peak, "MB"),
            Figure("peak memory of operator", after["operator"].peak, "MB"),
        ]

    return on_stage(
        play, gpus=GPUS, namespaces=[NAMESPACE], tell=tell, plane_type=PlaneWithScheduler
    )


def turned_over(kubelet: Kubelet, claims: SettledClaims) -> list[Figure]:
    """Return how many Pods have followed those that ended, and how long they took."""
    first = GPUS * CAPACITY
    followers = list(kubelet.bound)[first:]
    waits = [kubelet.bound[pod] - claims.allocated[pod] for pod in followers]
    unbound = claims.allocated.keys() - kubelet.bound.keys()
    found = [Figure("Pods bound in that minute", len(followers), "")]
    if waits:
        found.append(Figure("allocated to bound, median", statistics.median(waits), "s"))
        found.append(Figure("allocated to bound, slowest", max(waits), "s"))
    return [
        *found,
        Figure("allocated and not bound at its end", len(unbound), ""),
        Figure("allocations taken back", claims.taken_back, ""),
    ]


async def submit(stage: Stage, pods: int, *, gated: bool) -> None:
    """Create the Pods as fast as the API server takes them."""
    numbers, made = iter(range(pods)), itertools.count(1)
    done = 0

    async def work() -> None:
        nonlocal done
        for number in numbers:
            body = claim_pod(f"pod-{number}", gated=gated)
            await stage.api.post(f"/api/v1/namespaces/{NAMESPACE}/pods", body)
            done = next(made)

    async with asyncio.TaskGroup() as group:
        for _ in range(SUBMITTERS):
            group.create_task(work())
        await stage.until("Pods created", lambda: done, pods)
