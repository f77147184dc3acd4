"""What claims can ask for is published, kept as it should be, and goes with its partition."""

from __future__ import annotations

from typing import Any

import pytest

from partita.constants import ALLOCATION_GATE
from support.job import container
from support.polling import until
from support.system import System

RESOURCES = "/apis/resource.k8s.io/v1"
CLASSES = f"{RESOURCES}/deviceclasses"
SLICES = f"{RESOURCES}/resourceslices"


@pytest.fixture(autouse=True)
def often(system: System) -> None:
    """Look again soon for what others have deleted."""
    system.set_times(check_devices=0.2, devices_pause=0.05)


async def names(system: System, path: str) -> set[str]:
    """The objects of the test's partition."""
    found = (await system.api.get(path)).ok().names
    return {name for name in found if system.stem in name}


async def appear(system: System, path: str, *wanted: str) -> None:
    """Wait until the objects of the test's partition are these."""

    async def are_there() -> bool:
        return await names(system, path) == set(wanted)

    await until(are_there)


async def changed(system: System, path: str, holds: Any) -> dict[str, Any]:
    """Wait for an object to be so, and return it."""

    async def is_so() -> bool:
        answer = await system.api.get(path)
        return answer.status == 200 and holds(answer.body)

    await until(is_so)
    return dict((await system.api.get(path)).ok().body)


async def test_a_partition_has_classes_and_each_ready_gpu_a_slice(system: System) -> None:
    async with system.running(2):
        name = await system.ready_partition(2, slices=[{"name": "small", "memory": "4Gi"}])
        domain = f"{name}.gpu.partita.dev"
        await appear(system, CLASSES, domain, f"small.{domain}")
        gpus = [s["metadata"]["name"] for s in system.servers(name)]
        await appear(system, SLICES, *(f"{gpu}.gpu.partita.dev" for gpu in gpus))
        await system.change_partition(name, slices=[])
        await appear(system, CLASSES, domain)
        await system.scale(name, 1)
        await appear(system, SLICES, f"{gpus[0]}.gpu.partita.dev")
        await system.api.delete(f"/apis/partita.dev/v1alpha1/gpupartitions/{name}")
        await appear(system, CLASSES)
        await appear(system, SLICES)


async def test_what_others_delete_and_change_comes_back(system: System) -> None:
    async with system.running(1):
        name = await system.ready_partition(1)
        wiped, edited = f"{SLICES}/{name}-0.gpu.partita.dev", f"{CLASSES}/{name}.gpu.partita.dev"
        first = await changed(system, wiped, lambda _: True)
        (await system.api.delete(wiped)).ok()
        again = await changed(
            system, wiped, lambda body: body["metadata"]["uid"] != first["metadata"]["uid"]
        )
        (device,), (other,) = again["spec"]["devices"], first["spec"]["devices"]
        assert (device["attributes"], device["capacity"]) == (
            other["attributes"],
            other["capacity"],
        )
        before = await changed(system, edited, lambda _: True)
        opened = {"selectors": [{"cel": {"expression": "true"}}]}
        (await system.api.patch(edited, {"spec": opened})).ok()
        await changed(system, edited, lambda body: body["spec"] == before["spec"])


async def test_a_template_is_made_when_a_pod_names_it_and_deleted_when_none_does(
    system: System,
) -> None:
    system.set_times(check_templates=0.1, unused_template=0.1)
    async with system.running(1):
        partition = await system.ready_partition(1)
        name = f"partita-{partition}-6442450944-50"
        spec = {
            "containers": [container()],
            "schedulingGates": [{"name": ALLOCATION_GATE}],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": name}],
        }
        path = f"/api/v1/namespaces/{system.namespace}/pods"
        (await system.api.post(path, {"metadata": {"name": "serve"}, "spec": spec})).ok()
        templates = f"{RESOURCES}/namespaces/{system.namespace}/resourceclaimtemplates/{name}"
        body = await changed(system, templates, lambda _: True)
        (request,) = body["spec"]["spec"]["devices"]["requests"]
        assert request["exactly"]["deviceClassName"] == f"{partition}.gpu.partita.dev"
        (await system.api.delete(f"{path}/serve", {"gracePeriodSeconds": 0})).ok()
        await system.api.gone(templates)
