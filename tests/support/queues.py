"""Queues that wait until a test says go."""

from __future__ import annotations

from typing import Any

from support.operator import Job, System

__all__ = ["LONG", "blocked"]

LONG = {"duration": "1000h"}
"""A program that does not end while a test runs."""


async def blocked(system: System, partition: str, *names: str, **spec: Any) -> tuple[Job, ...]:
    """Submit a job that fills a GPU, and others that wait for it."""
    blocker = await system.job("blocker", partition, gpuMemory="37Gi", sim=LONG)
    await blocker.runs()
    jobs = [await system.job(name, partition, **spec) for name in names]
    for job in jobs:
        await job.until(lambda s: s.get("phase") == "Queued")
    return (blocker, *jobs)
