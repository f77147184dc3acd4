"""Objects that are older than the bounds of their definition: they cannot be read, and are there."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import AsyncIterator
from copy import deepcopy
from typing import Any

import pytest

from partita.models import crd
from support.clusters import ApiServer
from support.crds import DEFINITIONS
from support.history import GROUP_PATH
from support.polling import until
from support.queues import LONG
from support.system import System

Body = dict[str, Any]

PYTHONS_LIMIT = 1_000
"""How deeply Python's functions and parsers recurse, unless somebody raises it."""


def without_rules(schema: Any) -> Any:
    """Return a schema as one that has no bounds."""
    bounds = {"x-kubernetes-validations", "maxLength", "pattern"}
    if isinstance(schema, dict):
        return {k: without_rules(v) for k, v in schema.items() if k not in bounds}
    return [without_rules(v) for v in schema] if isinstance(schema, list) else schema


@contextlib.asynccontextmanager
async def without_bounds(system: System, plural: str, probe: Body) -> AsyncIterator[None]:
    """Have the definition of before; `probe` is what today's refuses."""
    (today,) = (d for d in crd.crds() if d["spec"]["names"]["plural"] == plural)
    before = deepcopy(today)
    (version,) = before["spec"]["versions"]
    version["schema"] = without_rules(version["schema"])
    path = f"{DEFINITIONS}/{today['metadata']['name']}"
    system.history.redefined.add(plural)

    async def has(definition: Body, status: int) -> None:
        (await system.api.patch(path, {"spec": definition["spec"]})).ok()
        within = f"/namespaces/{system.namespace}" if plural == "sharedgpujobs" else ""
        collection = f"{GROUP_PATH}{within}/{plural}"

        async def is_served() -> bool:
            return (await system.api.post(collection, probe, dryRun="All")).status == status

        await until(is_served)

    await has(before, 201)
    try:
        yield
    finally:
        await has(today, 422)


def kind(name: str, spec: Body, kind: str) -> Body:
    meta = {"name": name}
    return {"apiVersion": "partita.dev/v1alpha1", "kind": kind, "metadata": meta, "spec": spec}


TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "example.org/image:1"}]}}
QUOTA = {"quotas": [{"namespace": "somebody", "memory": "8Ei"}]}


def readable(status: Body) -> tuple[str, str] | None:
    """Status and message of the condition `Readable`; None where there is none."""
    for condition in status.get("conditions", []):
        if condition["type"] == "Readable":
            return condition["status"], condition["message"]
    return None


def says_so(status: Body, field: str) -> bool:
    found = readable(status)
    return found is not None and found[0] == "False" and field in found[1]


async def events(system: System, name: str, field: str) -> None:
    await system.history.until(
        lambda: any(
            reason == "Unreadable" and field in said for reason, said in system.history.events(name)
        )
    )


async def test_the_gpus_and_jobs_of_a_partition_that_cannot_be_read_stay(system: System) -> None:
    field = "spec.quotas[0].memory"
    async with system.nodes(1):
        async with system.operator():
            partition = await system.ready_partition()
            runs = await system.job("runs", partition, gpuMemory="4Gi", sim=LONG)
            await runs.runs()
            probe = kind("probe", {"gpus": 0, **QUOTA}, "GPUPartition")
            async with without_bounds(system, "gpupartitions", probe):
                await system.change_partition(partition, **QUOTA)
            # What was last read of it stays in force.
            await system.partition_says(partition, lambda s: says_so(s, field))
            await events(system, partition, field)
            await (await system.job("short", partition, gpuMemory="4Gi")).succeeds()
        (server,) = system.servers(partition)
        async with system.operator():
            # Nothing was read of it: nothing is started there, and nothing is released.
            waits = await system.job("waits", partition, gpuMemory="4Gi")
            await waits.waits("PartitionUnreadable", partition, field, "below 8Ei")
            (await runs.change(priority=1)).ok()  # it is looked at once more
            await runs.until(lambda s: s["observedGeneration"] == 2)
            assert [s["metadata"]["uid"] for s in system.servers(partition)] == [
                server["metadata"]["uid"]
            ]
            assert "deletionTimestamp" not in system.servers(partition)[0]["metadata"]
            assert runs.outcomes == [""]
            quotas = [{"namespace": "somebody", "memory": "4Gi"}]
            await system.change_partition(partition, quotas=quotas)
            await waits.succeeds()
            await system.partition_says(partition, lambda s: readable(s) is None)
            assert runs.outcomes == [""]
            await system.settle()


async def test_a_job_that_cannot_be_read_keeps_its_allocation_and_its_pod(system: System) -> None:
    field = "spec.expectedDuration"
    async with system.nodes(1):
        async with system.operator():
            partition = await system.ready_partition()
            job = await system.job("runs", partition, gpuMemory="4Gi", sim=LONG)
            await job.runs()
            probe = kind("probe", {"partition": "a", "template": TEMPLATE}, "SharedGPUJob")
            probe["spec"]["expectedDuration"] = "for ever"
            async with without_bounds(system, "sharedgpujobs", probe):
                (await job.change(expectedDuration="for ever")).ok()
            await job.until(lambda s: says_so(s, field))
            await events(system, "runs", field)
        async with system.operator():
            await (await system.job("beside", partition, gpuMemory="4Gi")).succeeds()
            (server,) = system.servers(partition)
            assert job.holds(server)
            assert job.pod() is not None
            assert job.outcomes == [""]
            (await job.change(expectedDuration="1h")).ok()
            await job.until(lambda s: readable(s) is None and s["phase"] == "Running")
            await system.settle()


async def test_a_partition_that_is_nested_deeply_ends_no_operator(
    system: System, api_server: ApiServer
) -> None:
    """Whoever may change a partition may write what its `managedFields` say."""
    if api_server.kind == "embedded":
        pytest.skip("the embedded API server takes about 1,000 levels, a real one 10,000")
    entry = {
        "manager": "somebody",
        "operation": "Update",
        "apiVersion": "partita.dev/v1alpha1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:gpus": {}}},
    }
    levels = 1_500  # above the limit; the time that a real server needs grows as their square
    nested = '{"f:a":' * levels + "{}" + "}" * levels
    patch = json.dumps({"metadata": {"managedFields": [entry]}}).replace("{}", nested)
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(PYTHONS_LIMIT)  # pytest's plugins may have raised it
    try:
        async with system.running(1):
            partition = await system.ready_partition()
            (await system.api.patch(f"{GROUP_PATH}/gpupartitions/{partition}", patch)).ok()
            await (await system.job("train", partition, gpuMemory="1Gi")).succeeds()
    finally:
        sys.setrecursionlimit(before)
