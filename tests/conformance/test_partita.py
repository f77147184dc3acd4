"""Partita's own kinds: the server takes them, and offline validation says what it says."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from conformance.objects import path
from models.objects import BOUNDS, RULES
from partita.validation.dry_run import partita_kind
from partita.validation.kinds import builtin_kinds
from support.api import Api
from support.crds import install_crds

ROOT = Path(__file__).parents[2]
CRDS = {
    definition["spec"]["names"]["kind"]: definition
    for definition in (
        yaml.load(f.read_text(), yaml.CSafeLoader)
        for f in sorted((ROOT / "crds").glob("partita.dev_*"))
    )
}
EXAMPLES = [
    example
    for file in sorted((ROOT / "examples").glob("*.yaml"))
    for example in yaml.safe_load_all(file.read_text())
    if example["kind"] in CRDS
]

WORKLOADS = [
    example
    for file in sorted((ROOT / "examples" / "workloads").glob("*.yaml"))
    for example in yaml.safe_load_all(file.read_text())
    if (example["apiVersion"], example["kind"]) in builtin_kinds()
]


@pytest.fixture(autouse=True)
async def _served(api: Api) -> None:
    await install_crds(api)


@pytest.fixture
def post(api: Api, namespace: str) -> Any:
    """Create an object in earnest or dry, strictly; in the test's namespace if it has one."""

    async def post(obj: dict[str, Any]) -> Any:
        names = CRDS[obj["kind"]]["spec"]["names"]
        path = f"/apis/{obj['apiVersion']}"
        if CRDS[obj["kind"]]["spec"]["scope"] == "Namespaced":
            obj = obj | {"metadata": obj["metadata"] | {"namespace": namespace}}
            path += f"/namespaces/{namespace}"
        return await api.post(
            f"{path}/{names['plural']}", obj, dryRun="All", fieldValidation="Strict"
        )

    return post


@pytest.mark.smoke
@pytest.mark.parametrize("kind", CRDS)
async def test_its_definitions_are_established_without_a_remark(api: Api, kind: str):
    crd = copy.deepcopy(CRDS[kind])
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd['metadata']['name']}"
    stored = (await api.get(path)).ok().body
    conditions = {c["type"]: c["status"] for c in stored["status"]["conditions"]}
    assert conditions["Established"] == "True"
    assert conditions.get("NonStructuralSchema", "False") == "False"
    applied = await api.patch(path, {"spec": crd["spec"]}, dryRun="All")
    assert "Warning" not in applied.ok().headers


@pytest.mark.smoke
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example["metadata"]["name"])
async def test_examples_are_taken_as_offline_validation_foretells(post: Any, example: dict):
    foretold = copy.deepcopy(example)
    rules = partita_kind(example["kind"])
    assert rules.schema.prune(foretold) == []
    assert rules.complete(foretold) == []
    created = (await post(example)).ok()
    assert created.body["spec"] == foretold["spec"]
    assert "Warning" not in created.headers


def shared(foretold: Any, created: Any) -> Any:
    """Return what was created without what was not foretold; the server may default more."""
    if isinstance(foretold, dict) and isinstance(created, dict):
        return {k: shared(foretold[k], v) for k, v in created.items() if k in foretold}
    if isinstance(foretold, list) and isinstance(created, list):
        return [shared(*pair) for pair in zip(foretold, created, strict=True)]
    return created


@pytest.mark.parametrize("example", WORKLOADS, ids=lambda e: f"{e['kind']}-{e['metadata']['name']}")
async def test_workloads_are_taken_as_offline_validation_foretells(
    api: Api, namespace: str, example: dict
):
    foretold = copy.deepcopy(example)
    rules = builtin_kinds()[example["apiVersion"], example["kind"]]
    assert rules.schema.prune(foretold) == []
    assert rules.complete(foretold) == []
    obj = example | {"metadata": example["metadata"] | {"namespace": namespace}}
    where = path(namespace, example["kind"].lower() + "s")
    created = (await api.post(where, obj, dryRun="All", fieldValidation="Strict")).ok().body
    if example["kind"] == "Job":  # it selects its Pods by its UID
        del foretold["spec"]["selector"], foretold["spec"]["template"]["metadata"]["labels"]
    assert shared(foretold["spec"], created["spec"]) == foretold["spec"]


def without_value(error: str) -> str:
    """Leave the value out: of one of the wrong type kube-apiserver quotes the type instead."""
    return re.sub(r'Invalid value: ("[^"]*"|\S+): ', "Invalid value: ", error)


@pytest.mark.parametrize(
    "wrong", [row[0] for row in (*RULES, *BOUNDS)], ids=lambda w: str(w["spec"])[:90]
)
async def test_offline_validation_finds_what_the_server_finds(post: Any, wrong: dict):
    offline = copy.deepcopy(wrong)
    rules = partita_kind(wrong["kind"])
    rules.schema.prune(offline)
    found = {str(error) for error in rules.complete(offline)}
    answer = await post(wrong)
    causes = (answer.body.get("details") or {}).get("causes", ()) if answer.status == 422 else ()
    # Remarks about no field come from how kube-apiserver stops, see conformance.objects.causes.
    told = {f"{cause['field']}: {cause['message']}" for cause in causes}
    assert {without_value(e) for e in found if not e.startswith(("<nil>", "."))} == {
        without_value(e) for e in told if not e.startswith(("<nil>", "."))
    }
    assert answer.status == (422 if told else 201)
