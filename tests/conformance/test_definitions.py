"""Installing, changing and removing CustomResourceDefinitions."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from typing import Any

import pytest

from conformance.conftest import CRDS, install
from conformance.objects import GROUP, causes, crd
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


def no_schema(definition: dict) -> None:
    del definition["spec"]["versions"][0]["schema"]


def untyped_property(definition: dict) -> None:
    root = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    root["properties"]["spec"]["properties"]["bad"] = {"description": "no type"}


def rule_that_does_not_compile(definition: dict) -> None:
    root = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    root["properties"]["spec"]["x-kubernetes-validations"] = [{"rule": "self.nothing == 1"}]


def default_of_the_wrong_type(definition: dict) -> None:
    root = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    root["properties"]["spec"]["properties"]["bad"] = {"type": "integer", "default": "one"}


SPEC = "spec.validation.openAPIV3Schema.properties[spec]"
"""Where a schema stands inside kube-apiserver: with one version its errors keep that path."""


@pytest.mark.parametrize(
    ("spoil", "cause"),
    [
        (no_schema, ("FieldValueRequired", "spec.versions[0].schema.openAPIV3Schema")),
        (untyped_property, ("FieldValueRequired", f"{SPEC}.properties[bad].type")),
        (
            rule_that_does_not_compile,
            ("FieldValueInvalid", f"{SPEC}.x-kubernetes-validations[0].rule"),
        ),
        (default_of_the_wrong_type, ("FieldValueTypeInvalid", f"{SPEC}.properties[bad].default")),
    ],
)
async def test_refuses_a_bad_definition(
    api: Api, spoil: Callable[[dict], None], cause: tuple[str, str]
):
    definition = sample("badthings")
    spoil(definition)
    answer = await api.post(CRDS, definition)
    assert answer.status == 422
    assert answer.body["reason"] == "Invalid"
    assert cause in causes(answer.body)


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
