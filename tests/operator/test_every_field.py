"""Every field of every kind at its extremes, before and after a restart of the operator."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable
from typing import Any

import pytest

from partita.constants import ANNOTATION_RETRY
from support.api import Answer
from support.extremes import QUANTITIES, STRANGE, extremes
from support.history import GROUP_PATH
from support.operator import Job, System, container

Body = dict[str, Any]

AT_ONCE = 16
"""Requests on their way at one time."""
ENDLESS = {"duration": "1000h"}
"""At a hundred virtual seconds a second it outlives the test."""
ANSWERED_WITHIN = 120
"""Seconds until the next of about a thousand objects is answered, and until the last job has run."""
ANSWERS = {201, 400, 409, 413, 422, 500}
"""What an API server says to an object that it takes or refuses."""
TOO_DEEP = "nested too deeply"
"""What alone makes a stored object unreadable: a schema cannot bound the depth of a template."""


def templates() -> Iterable[Body]:
    """Templates whose fields have values that Kubernetes, which reads them last, refuses."""
    amounts: list[Any] = [*QUANTITIES, *STRANGE, None, [], {}]
    for amount in amounts:
        for name in ("cpu", "memory", "ephemeral-storage", "nvidia.com/gpu"):
            yield {"containers": [container(resources={"requests": {name: amount}})]}
    for wrong in (None, 5, "text", [], {}, [5], [None], {"a": {"b": 1}}, [{"key": 1}]):
        for name in ("resources", "env", "volumeMounts", "args"):
            yield {"containers": [container(**{name: wrong})]}
        for name in (
            *("nodeSelector", "affinity", "tolerations", "initContainers", "volumes", "overhead"),
            *("restartPolicy", "activeDeadlineSeconds", "schedulingGates", "resources"),
        ):
            yield {"containers": [container()], name: wrong}
    for amount in (-1, 0, 2**31, 2**63, 1.5):
        yield {"containers": [container()], "terminationGracePeriodSeconds": amount}


async def posted(system: System, kind: str, specs: Iterable[tuple[Body, Body]]) -> list[Body]:
    """Create objects of these annotations and specs; return what the API server stored."""
    plural = f"{kind.lower()}s"
    namespaced = kind in {"SharedGPUJob", "ApplicationProfile"}
    within = f"namespaces/{system.namespace}/" if namespaced else ""
    turns = asyncio.Semaphore(AT_ONCE)

    async def post(number: int, annotations: Body, spec: Body) -> Answer:
        meta = {"name": system.named(f"{kind.lower()}-{number}"), "annotations": annotations}
        body = {
            "apiVersion": "partita.dev/v1alpha1",
            "kind": kind,
            "metadata": meta,
            "spec": spec,
        }
        async with turns:
            return await system.api.post(f"{GROUP_PATH}/{within}{plural}", body)

    answers = await asyncio.gather(*(post(n, *one) for n, one in enumerate(specs)))
    strange = [answer for answer in answers if answer.status not in ANSWERS]
    assert not strange, strange[:3]
    stored = [answer.body for answer in answers if answer.status == 201]
    assert stored
    assert len(stored) < len(answers), "not all of these are allowed"
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


async def answered_some(system: System, waiting: list[Body]) -> list[Body]:
    """Wait until something is said of one of these objects; return those that still wait."""
    await system.history.until(
        lambda: len(silent(system, waiting)) < len(waiting),
        seconds=ANSWERED_WITHIN,
        what=lambda: waiting[:3],
    )
    return silent(system, waiting)


async def said_all(system: System, stored: list[Body], keeper: Job, name: str) -> None:
    """Judge what an operator has made of the objects."""
    left = silent(system, stored)
    while left:
        left = await answered_some(system, left)
    job = await system.job(name, keeper_partition(keeper), gpuMemory="1Gi")
    await system.history.until(
        lambda: job.status.get("phase") == "Succeeded",
        seconds=ANSWERED_WITHIN,  # all of the others that fit go before it
        what=lambda: job.status,
    )
    assert keeper.outcomes == [""]
    (server,) = system.servers(keeper_partition(keeper))
    assert keeper.uid in server["status"]["allocations"]
    assert complaints(system) == []


def keeper_partition(keeper: Job) -> str:
    assert keeper.body is not None
    return str(keeper.body["spec"]["partition"])


@pytest.mark.timeout(600)
async def test_extremes_of_every_field_harm_nobody_and_are_answered(system: System) -> None:
    marks = [
        {ANNOTATION_RETRY: text} for text in [*STRANGE, "9" * 10_000, "-1", "1e999", "[" * 999]
    ]
    async with system.nodes(1):
        stored: list[Body] = []
        async with system.operator():
            main = await system.partition()
            await system.ready(main)
            keeper = await system.job("keeper", main, gpuMemory="4Gi", sim=ENDLESS)
            await keeper.runs()
            plain: Body = {"spec": {"containers": [container()]}}
            job = {"partition": main, "gpuMemory": "1Gi", "template": plain}
            partitions = [
                spec
                for path, spec in extremes("GPUPartition", {"gpus": 0})
                if path != "gpus" or spec["gpus"] <= 0  # test_scaling has many
            ]
            profiles = [
                {**spec, "application": f"app-{n}"} if path != "application" else spec
                for n, (path, spec) in enumerate(
                    extremes(
                        "ApplicationProfile",
                        {
                            "application": "app",
                            "measurements": [{"duration": "1m", "steps": [{"gpuMemory": "1Gi"}]}],
                        },
                    )
                )
            ]
            kept = await posted(system, "ApplicationProfile", (({}, spec) for spec in profiles))
            learnt = [
                {**job, "application": one["spec"]["application"], "gpuMemory": None}
                for one in kept
            ]
            jobs = itertools.chain(
                (({}, spec) for _, spec in extremes("SharedGPUJob", job)),
                ((mark, job) for mark in marks),
                (({}, {k: v for k, v in s.items() if v is not None}) for s in learnt),
                (({}, {**job, "template": {"spec": spec}}) for spec in templates()),
            )
            stored += await posted(
                system,
                "GPUPartition",
                [*((m, {"gpus": 0}) for m in marks), *(({}, s) for s in partitions)],
            )
            await posted(
                system,
                "GPUServer",
                (({}, spec) for _, spec in extremes("GPUServer", {"partition": "nobodys"})),
            )
            stored += await posted(system, "SharedGPUJob", jobs)
            await said_all(system, stored, keeper, "beside")
        async with system.operator():
            await said_all(system, stored, keeper, "after")
