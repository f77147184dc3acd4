"""What the operator records of allocations and usage, across crashes and days."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from partita.accounting.daily_usage import Amounts, DailyUsage, UsageKey
from partita.models.quantities import parse_time
from partita.store.work_queue import utc_now
from support.crds import OPERATOR_NAMESPACE
from support.job import Job
from support.polling import until
from support.queues import LONG
from support.system import System

Body = dict[str, Any]
Total = dict[UsageKey, Amounts]
MAPS = f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/configmaps"


@pytest.fixture(autouse=True)
async def often(system: System) -> None:
    """Write often, and begin without records of other tests."""
    system.set_times(write_usage=0.05)
    for item in (await system.api.get(MAPS)).ok().body["items"]:
        if item["metadata"]["name"].startswith("partita-usage-"):
            (await system.api.delete(f"{MAPS}/{item['metadata']['name']}")).ok()


async def records(system: System) -> list[DailyUsage]:
    items = (await system.api.get(MAPS)).ok().body["items"]
    ours = [item for item in items if item["metadata"]["name"].startswith("partita-usage-")]
    return sorted(map(DailyUsage.parse, ours), key=lambda record: record.day)


async def recorded(system: System, holds: Callable[[Total], bool]) -> Total:
    """Wait for the sum of all records to be so."""

    async def found() -> Total | None:
        total: Total = {}
        for record in await records(system):
            for key, amounts in record.amounts.items():
                total[key] = total.get(key, Amounts()) + amounts
        return total if holds(total) else None

    found_total: Total = await until(found)
    return found_total


def held(job: Job) -> float:
    """How long a finished job had its allocation, seconds."""
    (attempt,) = job.status["attempts"]
    return (parse_time(attempt["endTime"]) - parse_time(attempt["bookedTime"])).total_seconds()


async def put(system: System, day: datetime, data: Body) -> str:
    """Create a record as another process left it."""
    name = f"partita-usage-{day.date().isoformat()}"
    labels = {"partita.dev/component": "usage"}
    body = {"metadata": {"name": name, "labels": labels}, "data": data}
    (await system.api.post(MAPS, {"apiVersion": "v1", "kind": "ConfigMap", **body})).ok()
    return name


async def names(system: System) -> set[str]:
    items = (await system.api.get(MAPS)).ok().body["items"]
    return {item["metadata"]["name"] for item in items}


async def test_a_new_leader_counts_on_and_nothing_twice(system: System) -> None:
    async with system.nodes(1):
        async with system.operator():
            gpus = await system.partition(sharing={"memoryReservePercent": 0})
            job = await system.job("train", gpus, gpuMemory="20Gi", sim=LONG)
            key = UsageKey(gpus, system.namespace, "")
            await job.runs()
            await recorded(system, lambda t: key in t)
        async with system.operator():
            await job.end()
            await job.succeeds()
            least = held(job) / 2
            total = await recorded(
                system, lambda t: t.get(key, Amounts()).gpu_seconds_allocated >= least
            )
            (attempt,) = job.status["attempts"]
            elapsed = (utc_now() - parse_time(attempt["bookedTime"])).total_seconds()
            assert total[key].gpu_seconds_allocated <= elapsed / 2
            await system.settle()


async def test_old_and_broken_records_are_deleted_and_others_stay(system: System) -> None:
    now = utc_now()
    kept, old = now - timedelta(days=80), now - timedelta(days=100)
    stays = await put(system, kept, DailyUsage(kept.date(), kept).dump())
    goes = await put(system, old, DailyUsage(old.date(), old).dump())
    broken = await put(system, now, {"usage.csv": "0"})
    async with system.running(1):

        async def gone() -> bool:
            return not {goes, broken} & await names(system)

        await until(gone)
        gpus = await system.partition()
        await (await system.job("train", gpus)).succeeds()
        await recorded(system, bool)
        assert stays in await names(system)
    system.logs[:] = [entry for entry in system.logs if entry.get("name") != broken]


async def test_a_record_that_somebody_deletes_is_written_again(system: System) -> None:
    async with system.running(1):
        gpus = await system.partition()
        job = await system.job("train", gpus, sim=LONG)
        await recorded(system, bool)
        (name,) = {name for name in await names(system) if name.startswith("partita-usage-")}
        (await system.api.delete(f"{MAPS}/{name}")).ok()
        await recorded(system, bool)
        await job.delete()
