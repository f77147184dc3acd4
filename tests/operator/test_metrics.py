"""A real scrape of an operator that works, held against what the cluster shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from metrics.example import operator
from partita.models.quantities import parse_memory
from support.job import Job
from support.polling import until
from support.queues import LONG
from support.system import GIB, System
from support.workloads import submit


class Scrape:
    """One page, by what Prometheus would make of it."""

    def __init__(self, text: str) -> None:
        self.families = {f.name: f for f in text_string_to_metric_families(text)}
        self.samples = [s for family in self.families.values() for s in family.samples]

    def value(self, name: str, **labels: str) -> float | None:
        """The sum of all series of a name that have these labels; None where there is none."""
        found = [
            s.value for s in self.samples if s.name == name and labels.items() <= s.labels.items()
        ]
        return sum(found) if found else None

    def tells(self, name: str, value: float, **labels: str) -> None:
        """Hold a value against what it should be."""
        assert (name, labels, self.value(name, **labels)) == (name, labels, value)

    def names(self) -> set[str]:
        """The names of our own series."""
        return {s.name for s in self.samples if s.name.startswith("partita_")}


async def scrape(port: int) -> Scrape:
    url = f"http://127.0.0.1:{port}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"].startswith("text/plain; version=")
        return Scrape(await answer.text())


async def scrape_until(port: int, check: Callable[[Scrape], None]) -> Scrape:
    """Scrape until a check finds nothing wrong; fail with what it found last.

    The operator may have to start first. The cluster shows a write before its writer has the
    answer, and a decision is counted as asked for while the policy still thinks: a single page may
    be of that moment.
    """
    wrong = AssertionError("no page was had")

    async def right() -> Scrape | None:
        nonlocal wrong
        try:
            page = await scrape(port)
            check(page)
        except aiohttp.ClientConnectionError:
            return None
        except AssertionError as error:
            wrong = error
            return None
        return page

    found: Scrape = await until(right, what=lambda: wrong)
    return found


async def test_what_happened_is_in_a_scrape(system: System, port: int) -> None:
    async with system.nodes(1), system.operator(health_port=port):
        partition = await system.partition(policy={"name": "sjf", "shadow": ["fifo"]})
        (server,) = await system.ready(partition)

        def usage(job: Job) -> dict[str, Any]:
            """What the agent tells of a job."""
            (now,) = system.servers(partition)
            return job.usage(now)

        serve = await submit(system, "serve", partition, memory="1Gi")
        await serve.runs()
        await serve.end()
        await serve.until(lambda w: not w.entries)
        seen = await system.job("seen", partition, gpuMemory="4Gi", sim=LONG)
        await system.history.until(lambda: usage(seen).get("firstUse"))
        await system.seen()
        await seen.change(suspend=True)
        await seen.phase("Suspended")
        grows = await system.job("grows", partition, gpuMemory="8Gi", sim={"memory": "9Gi"})
        await grows.succeeds()
        long = await system.job("long", partition, gpuMemory="30Gi", sim=LONG)
        await long.runs()
        await (await system.job("waits", partition, gpuMemory="20Gi")).waits("InsufficientMemory")
        await system.history.until(lambda: usage(long).get("memory"))

        def check(page: Scrape) -> None:
            gpu = {"gpu": server["metadata"]["name"], "partition": partition}
            made = len(system.history.job_pods()) + 1
            page.tells("partita_leader", 1)
            page.tells("partita_api_writes_total", made, verb="create", resource="pods")
            page.tells("partita_jobs", 1, phase="Running", partition=partition)
            page.tells("partita_queue_jobs", 1, reason="InsufficientMemory", partition=partition)
            for outcome in ("OutOfMemory", "Succeeded", "Suspended"):
                page.tells("partita_attempts_total", 1, outcome=outcome, partition=partition)
            page.tells("partita_attempt_queue_seconds_count", 4, partition=partition)
            page.tells("partita_gpu_allocated_memory_bytes", 30 * GIB, **gpu)
            (now,) = system.servers(partition)
            used = parse_memory(now["status"]["usage"]["memory"])
            page.tells("partita_gpu_used_memory_bytes", used, **gpu)
            decisions = page.value("partita_policy_decisions_total", policy="sjf")
            assert decisions
            page.tells("partita_policy_decision_seconds_count", decisions, policy="sjf")
            assert page.value("partita_shadow_decisions_total", policy="fifo")
            page.tells("partita_claim_steps_total", 1, step="Released", partition=partition)
            # The simulated agents run no canaries.
            untold = {"partita_unrecorded_decisions_total", "partita_mps_canary_seconds"}
            every = {sample.name for f in operator().registry.collect() for sample in f.samples}
            assert page.names() == {n for n in every if n.startswith("partita_")} - untold

        await scrape_until(port, check)
        await system.settle()
