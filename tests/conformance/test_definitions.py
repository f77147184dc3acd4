"""Installing, changing and removing CustomResourceDefinitions."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

from conformance.conftest import CRDS, install
from conformance.objects import GROUP, crd
from support.api import MERGE, Api
from support.polling import TIMEOUT


def sample(plural: str, **schema: Any) -> dict[str, Any]:
    """Return a CRD whose spec has these properties."""
    properties = {"spec": {"type": "object", "properties": schema}}
    return crd(
        plural,
        plural.removesuffix("s").capitalize(),
        scope="Cluster",
        version={"schema": {"openAPIV3Schema": {"type": "object", "properties": properties}}},
    )


async def test_status_says_that_it_is_established(api: Api):
    status = (await api.get(f"{CRDS}/widgets.{GROUP}")).ok().body["status"]
    conditions = {c["type"]: c["status"] for c in status["conditions"]}
    assert conditions["NamesAccepted"] == "True"
    assert conditions["Established"] == "True"
    assert status["acceptedNames"]["kind"] == "Widget"
    assert status["storedVersions"] == ["v1"]


async def test_defaults_its_names(api: Api):
    definition = sample("plainthings")
    del definition["spec"]["names"]["singular"], definition["spec"]["names"]["listKind"]
    created = await api.post(CRDS, definition)
    assert created.status == 201
    assert created.body["spec"]["names"]["singular"] == "plainthing"
    assert created.body["spec"]["names"]["listKind"] == "PlainthingList"
    assert created.body["spec"]["conversion"] == {"strategy": "None"}
    await api.delete(f"{CRDS}/plainthings.{GROUP}")


async def test_a_new_field_is_kept_after_the_definition_gains_it(api: Api):
    definition = sample("growings")
    await install(api, definition)
    path = f"/apis/{GROUP}/v1/growings"
    thing = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Growing",
        "metadata": {"name": "a"},
        "spec": {"later": 3},
    }
    before = await api.post(path, thing)
    assert "later" not in before.ok().body.get("spec", {})

    grown = copy.deepcopy(definition["spec"]["versions"])
    root = grown[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    root["properties"] = {"later": {"type": "integer"}}
    crd_path = f"{CRDS}/growings.{GROUP}"
    patched = await api.patch(crd_path, {"spec": {"versions": grown}}, MERGE)
    assert patched.ok().body["metadata"]["generation"] == 2
    async with asyncio.timeout(TIMEOUT):
        while "later" not in (await api.patch(f"{path}/a", {"spec": {"later": 3}})).body["spec"]:
            pass
    await api.delete(crd_path)


async def test_removal_takes_the_objects_and_the_path(api: Api):
    await install(api, sample("passings"))
    path = f"/apis/{GROUP}/v1/passings"
    thing = {"apiVersion": f"{GROUP}/v1", "kind": "Passing", "metadata": {"name": "a"}}
    (await api.post(path, thing)).ok()
    async with api.watch(path, resourceVersion="0") as watch:
        await watch.until("ADDED", "a")
        (await api.delete(f"{CRDS}/passings.{GROUP}")).ok()
        await watch.until("DELETED", "a")
    await api.gone(f"{CRDS}/passings.{GROUP}")
    await api.gone(path)
