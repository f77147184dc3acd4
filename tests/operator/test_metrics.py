"""A real scrape of an operator that works, held against what the cluster shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from partita.models.quantities import parse_memory
from partita.operator.metrics.definitions import SECTIONS
from support.polling import until
from support.system import GIB, System
from support.workloads import submit

OUTCOMES = ("OutOfMemory", "Succeeded", "Suspended")
"""How the attempts of the first test end, one each."""


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


def first_use(server: dict[str, Any], uid: str) -> str | None:
    """When the agent saw a job use the GPU first."""
    usage = server["status"].get("usage") or {}
    use: dict[str, str] = (usage.get("jobs") or {}).get(uid) or {}
    return use.get("firstUse")


def every_name() -> set[str]:
    """The names of the series of all that is defined."""
    parts = {"histogram": ("_bucket", "_count", "_sum")}
    metrics = [metric for section in SECTIONS for metric in section.metrics]
    return {m.name + part for m in metrics for part in parts.get(m.kind, ("",))}


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


def check_jobs(page: Scrape, used: int, **here: str) -> None:
    page.tells("partita_partition_wanted_gpus", 1, **here)
    page.tells("partita_jobs", 5, **here)
    page.tells("partita_jobs", 1, phase="Succeeded", **here)
    page.tells("partita_jobs", 1, phase="Suspended", **here)
    page.tells("partita_jobs", 1, phase="Running", **here)
    page.tells("partita_queue_jobs", 2, **here)
    page.tells("partita_queue_jobs", 1, reason="InsufficientMemory", **here)
    page.tells("partita_queue_jobs", 1, reason="NeverFits", **here)
    page.tells("partita_jobs_finished_total", 1, result="Succeeded", **here)
    for outcome in OUTCOMES:
        page.tells("partita_attempts_total", 1, outcome=outcome, **here)
    page.tells("partita_out_of_memory_resizes_total", 1, **here)
    page.tells("partita_attempt_queue_seconds_count", 4, **here)
    page.tells("partita_attempt_pod_start_seconds_count", 4, **here)
    page.tells("partita_attempt_first_use_seconds_count", used, **here)
    page.tells("partita_attempt_run_seconds_count", 3, **here)


def check_gpu(page: Scrape, server: dict[str, Any]) -> None:
    status = server["status"]
    (running_job,) = status["allocations"].values()
    gpu = {"gpu": server["metadata"]["name"], "partition": server["spec"]["partition"]}
    assert parse_memory(running_job["memory"]) == 30 * GIB
    page.tells("partita_gpu_allocated_memory_bytes", 30 * GIB, **gpu)
    page.tells("partita_gpu_allocated_jobs", 1, **gpu)
    page.tells("partita_gpu_memory_bytes", 40 * GIB, **gpu)
    used = parse_memory(status["usage"]["memory"])
    assert used
    page.tells("partita_gpu_used_memory_bytes", used, **gpu)
    page.tells("partita_gpu_state", 1, state="Ready", **gpu)
    page.tells("partita_gpu_info", 1, node=status["node"], uuid=status["uuid"], **gpu)
    page.tells("partita_mps_state", 1, state="Ready", **gpu)
    page.tells("partita_mps_clients", 1, **gpu)


def check_policy(page: Scrape, **here: str) -> None:
    charge = {"policy": "sjf", **here}
    decisions = page.value("partita_policy_decisions_total", **charge)
    assert decisions is not None
    assert decisions >= 3
    page.tells("partita_policy_decision_seconds_count", decisions, **charge)
    assert page.value("partita_shadow_decisions_total", policy="fifo")
    page.tells("partita_policy_fallbacks_total", 0, **charge)
    page.tells("partita_guard_rejections_total", 0, **charge)
    page.tells("partita_policy_healthy", 1, **charge)


def check_claims(page: Scrape, **here: str) -> None:
    for step in ("Allocated", "Started", "Released"):
        page.tells("partita_claim_steps_total", 1, step=step, **here)
    for step in ("TakenBack", "Refused", "Grown"):
        page.tells("partita_claim_steps_total", 0, step=step, **here)
    page.tells("partita_claim_queue_seconds_count", 1, **here)
    page.tells("partita_claim_pod_start_seconds_count", 1, **here)


async def test_every_figure_of_a_scrape_is_what_the_cluster_shows(
    system: System, port: int
) -> None:
    async with system.nodes(1), system.operator(health_port=port):
        partition = await system.partition(policy={"name": "sjf", "shadow": ["fifo"]})
        await system.ready(partition)
        serve = await submit(system, "serve", partition, memory="1Gi")
        await serve.runs()
        await serve.end()
        await serve.until(lambda w: not w.entries)
        seen = await system.job("seen", partition, gpuMemory="4Gi", sim={"duration": "1000h"})
        await system.history.until(lambda: first_use(system.servers(partition)[0], seen.uid))
        await system.seen()
        grows = await system.job("grows", partition, gpuMemory="8Gi", sim={"memory": "9Gi"})
        ends = [await grows.succeeds()]
        await seen.change(suspend=True)
        ends.append(await seen.phase("Suspended"))
        long = await system.job("long", partition, gpuMemory="30Gi", sim={"duration": "1000h"})
        await long.runs()
        waits = await system.job("waits", partition, gpuMemory="20Gi")
        await waits.waits("InsufficientMemory")
        await system.job("huge", partition, gpuMemory="100Gi")
        await system.found("huge").waits("NeverFits")
        await system.history.until(lambda: first_use(system.servers(partition)[0], long.uid))

        attempts = [a for end in ends for a in end["attempts"]]
        assert Counter(a["outcome"] for a in attempts) == dict.fromkeys(OUTCOMES, 1)
        used = sum("firstUseTime" in attempt for attempt in attempts)
        assert used
        here = {"partition": partition}

        def check(page: Scrape) -> None:
            (server,) = system.servers(partition)
            pods = {"verb": "create", "resource": "pods"}
            page.tells("partita_leader", 1)
            page.tells("partita_unreadable_objects", 0, resource="gpupartitions", field="")
            page.tells("partita_api_writes_total", len(system.history.job_pods()) + 1, **pods)
            check_jobs(page, used, **here)
            check_gpu(page, server)
            check_policy(page, **here)
            check_claims(page, **here)
            # The simulated agents run no canaries.
            untold = {"partita_unrecorded_decisions_total", "partita_mps_canary_seconds"}
            assert page.names() == every_name() - untold

        await scrape_until(port, check)
        await system.settle()
