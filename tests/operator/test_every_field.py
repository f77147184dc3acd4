"""Every field of every kind at its extremes, before and after a restart of the operator."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import pytest

from partita.constants import ANNOTATION_RETRY
from support.extremes import STRANGE, packed
from support.history import GROUP_PATH
from support.job import Job, container
from support.system import System

Body = dict[str, Any]

ENDLESS = {"duration": "1000h"}
"""At a hundred virtual seconds a second it outlives the test."""
TOO_DEEP = "nested too deeply"
"""What alone makes a stored object unreadable: a schema cannot bound the depth of a template."""
NUMBERS = itertools.count()
"""Of the names of objects."""
PLAIN: Body = {"spec": {"containers": [container()]}}
MARKS = [{ANNOTATION_RETRY: text} for text in [*STRANGE, "9" * 10_000, "-1", "1e999", "[" * 999]]
PLACING = ("partition", "gpus", "gpuMemory", "gpuMemoryLimit", "processes", "threadPercent")
"""Fields at whose extremes a job may not be placed."""
RULED = ("sharing.mode", "allowedNamespaces.matchExpressions[].operator")
"""Fields that rules of a partition set against others."""


def profiles() -> Iterable[Body]:
    """Histories of one application each."""
    steps = [{"gpuMemory": "1Gi"}]
    base = {"application": "app", "measurements": [{"duration": "1m", "steps": steps}]}
    for number, spec in enumerate(packed("ApplicationProfile", base, "application")):
        yield spec if spec["application"] != "app" else {**spec, "application": f"app-{number}"}


async def posted(
    system: System, kind: str, specs: Iterable[Body], annotations: Body | None = None
) -> list[Body]:
    """Create objects of these specs; return what the API server stored."""
    plural = f"{kind.lower()}s"
    namespaced = kind in {"SharedGPUJob", "ApplicationProfile"}
    within = f"namespaces/{system.namespace}/" if namespaced else ""
    stored = []
    for spec in specs:
        name = system.named(f"{kind.lower()}-{next(NUMBERS)}")
        meta = {"name": name, "annotations": annotations or {}}
        body = {"apiVersion": "partita.dev/v1alpha1", "kind": kind, "metadata": meta, "spec": spec}
        answer = await system.api.post(f"{GROUP_PATH}/{within}{plural}", body)
        stored.append(answer.ok().body)
    return stored


def silent(system: System, stored: Iterable[Body]) -> list[Body]:
    """Find objects about which nothing is said: those that went had been read."""
    found = []
    for body in stored:
        meta = body["metadata"]
        plural = f"{body['kind'].lower()}s"
        now = system.history.get(plural, meta["name"], meta.get("namespace", ""))
        status = (now or {}).get("status") or {}
        if now is not None and not (status.get("phase") or status.get("conditions")):
            found.append(now)
    return found


def complaints(system: System) -> list[Any]:
    """Find what the operator logged of failures of its own, and of what it could not read."""
    return [
        entry
        for entry in system.logs
        if entry.get("exc_info")
        or entry.get("log_level") in {"error", "critical"}
        or (entry.get("event") == "unreadable" and TOO_DEEP not in entry["problem"])
    ]


async def said_all(system: System, stored: list[Body], keeper: Job, name: str) -> None:
    """Judge what an operator has made of the objects."""
    left = stored

    def waiting() -> list[Body]:
        nonlocal left
        left = silent(system, left)
        return left

    await system.history.until(lambda: not waiting(), what=lambda: left[:3])
    assert keeper.body is not None
    partition = keeper.body["spec"]["partition"]
    await (await system.job(name, partition, gpuMemory="1Gi")).succeeds()
    assert keeper.outcomes == [""]
    (server,) = system.servers(partition)
    assert keeper.holds(server)
    assert complaints(system) == []


@pytest.mark.timeout(240)
async def test_extremes_of_every_field_harm_nobody_and_are_answered(system: System) -> None:
    async with system.nodes(1):
        async with system.operator():
            main = await system.ready_partition()
            keeper = await system.job("keeper", main, gpuMemory="4Gi", sim=ENDLESS)
            await keeper.runs()
            job = {"partition": main, "gpuMemory": "1Gi", "template": PLAIN}
            partitions = packed("GPUPartition", {"gpus": 0}, "gpus", *RULED)
            servers = packed("GPUServer", {"partition": "nobodys"})
            kept = await posted(system, "ApplicationProfile", profiles())
            await posted(system, "GPUServer", servers)
            jobs = [
                *packed("SharedGPUJob", job, *PLACING, "suspend"),
                *(
                    {
                        "partition": main,
                        "application": one["spec"]["application"],
                        "template": PLAIN,
                    }
                    for one in kept
                ),
            ]
            stored = [
                # Partitions of very many GPUs are another matter.
                *await posted(system, "GPUPartition", (s for s in partitions if s["gpus"] == 0)),
                *await posted(system, "SharedGPUJob", jobs),
            ]
            for mark in MARKS:
                stored += await posted(system, "SharedGPUJob", [job], mark)
            await said_all(system, stored, keeper, "beside")
        async with system.operator():
            await said_all(system, stored, keeper, "after")
