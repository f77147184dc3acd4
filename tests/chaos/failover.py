"""How long nobody leads: from the leader's end to the first allocation by the other operator."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from chaos.chaos_cluster import ChaosCluster
from chaos.operators import WAITS
from chaos.plan import JobPlan

__all__ = ["TARGETS", "Failover", "measure", "table"]

TARGETS = {"SIGKILL": 15.0, "SIGTERM": 2.0}
"""Seconds within which another must have allocated a job that waits."""
WITHIN = 60.0


@dataclass(frozen=True)
class Failover:
    """One change of the leader; seconds after the signal was sent."""

    how: str
    leads: float
    """Until the Lease named the other."""
    allocates: float
    """Until a job was allocated that had been submitted just before."""


async def measure(cluster: ChaosCluster, rounds: int, say: Callable[[str], None]) -> list[Failover]:
    """End the leader so many times in each way, at different moments of its Lease."""
    found = []
    for number in range(rounds * len(TARGETS)):
        how = list(TARGETS)[number % len(TARGETS)]
        failover = await _one(cluster, how, number, rounds)
        say(
            f"{how}: another leads after {failover.leads:.1f} s, allocates after {failover.allocates:.1f} s"
        )
        found.append(failover)
    return found


async def _one(cluster: ChaosCluster, how: str, number: int, rounds: int) -> Failover:
    operators, history = cluster.operators, cluster.history
    async with asyncio.timeout(WITHIN):
        while (
            operators.leader is None
            or operators.standby is None
            or WAITS not in operators.standby.process.log
        ):
            await asyncio.sleep(0.02)
    leader = operators.leader
    # Evenly over the time between two renewals, of which there are five in its Lease.
    period = operators.lease_seconds / 5
    last = operators.lease()
    await history.until(lambda: operators.lease().renewed != last.renewed, seconds=WITHIN)
    await asyncio.sleep(period * (number // len(TARGETS)) / rounds)
    job = JobPlan(f"probe-{number}", "succeeds", "shared", "red", 4, 0.1, "Succeeded")
    began = time.monotonic()
    ending = asyncio.create_task(
        operators.kill(leader) if how == "SIGKILL" else operators.stop(leader)
    )
    await cluster.submit(job)
    await history.until(
        lambda: operators.lease().holder not in {"", leader.identity}, seconds=WITHIN
    )
    leads = time.monotonic() - began
    await history.until(lambda: history.get("pods", f"{job.name}-1", job.team), seconds=WITHIN)
    allocates = time.monotonic() - began
    await ending
    return Failover(how, leads, allocates)


def table(failovers: Iterable[Failover], lease_seconds: float) -> str:
    """Print them beside their targets."""
    load = os.getloadavg()[0]
    lines = [
        (
            f"Failover with a Lease of {lease_seconds:g} s, load {load:.1f} on {os.cpu_count()} cores; "
            "seconds from the signal"
        ),
        f"{'':8} {'times':>5} {'leads, median':>14} {'allocates, median':>14} {'slowest':>8} {'target':>7}",
    ]
    for how, target in TARGETS.items():
        some = [failover for failover in failovers if failover.how == how]
        slowest = max(failover.allocates for failover in some)
        lines.append(
            f"{how:8} {len(some):5} {statistics.median(f.leads for f in some):14.1f} "
            f"{statistics.median(f.allocates for f in some):14.1f} {slowest:8.1f} {target:7g} "
            f"{'met' if slowest <= target else 'MISSED'}"
        )
    return "\n".join(lines)
