"""The examples for Argo CD and Flux: projects allow what is needed and no more, health is right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from cel_expr_python import cel

from gitops.test_lua import a_job, a_partition, an, is_
from partita.models import GPUPartition, SharedGPUJob

Body = dict[str, Any]

ROOT = Path(__file__).parents[2]
GITOPS = ROOT / "examples" / "gitops"
REPOSITORY = "https://git.example.com/platform/gpus.git"
COMES_ABOUT = {
    "partita-platform": {"partita.dev/GPUServer", "apps/ReplicaSet", "/Pod"},
    "partita-teams": {"/Pod"},
}
"""Kinds that nobody commits: Argo CD shows them only where the project names them."""


def read(*folders: str) -> list[Body]:
    files = [file for folder in folders for file in sorted((ROOT / folder).rglob("*.yaml"))]
    documents = [d for file in files for d in yaml.load_all(file.read_text(), yaml.CSafeLoader)]
    return [d for d in documents if d["kind"] not in {"Kustomization", "Component"}]


def kind_of(obj: Body) -> str:
    return f"{obj['apiVersion'].rpartition('/')[0]}/{obj['kind']}"


def wave(obj: Body) -> int:
    annotations = obj["metadata"].get("annotations", {})
    return int(annotations.get("argocd.argoproj.io/sync-wave", 0))


COMMITTED = {
    "partita-platform": read("manifests/base", "crds", "examples/gitops/platform"),
    "partita-teams": read("examples/gitops/teams"),
}


@pytest.mark.parametrize("name", COMMITTED)
def test_a_project_allows_what_is_committed_and_no_more(name: str):
    projects = {
        p["metadata"]["name"]: p["spec"]
        for p in read("examples/gitops/argocd")
        if "roject" in p["kind"]
    }
    project = projects[name]
    allowed = [*project["clusterResourceWhitelist"], *project["namespaceResourceWhitelist"]]
    assert {f"{a['group']}/{a['kind']}" for a in allowed} == {
        kind_of(obj) for obj in COMMITTED[name]
    } | COMES_ABOUT[name]
    for entry in project["clusterResourceWhitelist"]:
        namespaced = {
            "namespace" in obj["metadata"]
            for obj in COMMITTED[name]
            if kind_of(obj) == f"{entry['group']}/{entry['kind']}"
        }
        assert namespaced <= {False}, entry
    assert project["sourceRepos"] == [REPOSITORY]


def test_every_example_names_the_same_repository():
    for file in GITOPS.rglob("*.yaml"):
        for line in file.read_text().splitlines():
            if "URL:" in line or " url:" in line:
                assert line.split()[-1] == REPOSITORY, file


def test_the_waves_are_in_order():
    overlay = yaml.safe_load((ROOT / "manifests/overlays/argocd/kustomization.yaml").read_text())
    firsts = {p["target"]["kind"] for p in overlay["patches"] if '"-2"' in p["patch"]}
    assert firsts == {"Namespace", "CustomResourceDefinition"}
    waves = {
        obj["kind"]: wave(obj)
        for obj in read("examples/gitops/platform", "examples/gitops/teams", "manifests/base")
    }
    assert waves["Deployment"] == 0
    assert waves["GPUPartition"] == 1
    assert waves["SharedGPUJob"] == 2


def test_the_examples_are_as_our_models_want_them():
    jobs = [SharedGPUJob.parse(obj) for obj in COMMITTED["partita-teams"]]
    (partition,) = [
        GPUPartition.parse(obj)
        for obj in read("examples/gitops/platform")
        if obj["kind"] == "GPUPartition"
    ]
    assert {job.spec.partition for job in jobs} == {partition.metadata.name}
    # Deleted when it has finished, it would be brought back, and run again.
    assert all(job.spec.ttl_seconds_after_finished is None for job in jobs)
    # Named in Git, it would undo Argo CD's own action.
    assert all("suspend" not in obj["spec"] for obj in COMMITTED["partita-teams"])
    folders = {file.parent.name for file in (GITOPS / "teams").rglob("*.yaml")}
    assert {job.metadata.namespace for job in jobs} == folders


# Flux: what kustomize-controller makes of an object by the expressions.


def flux_health(obj: Body) -> str:
    """Evaluate as Flux does: the first that holds; what cannot be evaluated is waited for."""
    (found,) = [
        check
        for document in read_flux()
        for check in document["spec"].get("healthCheckExprs", [])
        if (check["apiVersion"], check["kind"]) == (obj["apiVersion"], obj["kind"])
    ]
    names = ("apiVersion", "kind", "metadata", "spec", "status")
    environment = cel.NewEnv(variables=dict.fromkeys(names, cel.Type.DYN))
    for state in ("inProgress", "failed", "current"):
        value = environment.compile(found[state]).eval(data=obj)
        if value.type() != cel.Type.BOOL:
            return "waited for"
        if value.value():
            return state
    return "waited for"


def read_flux() -> list[Body]:
    return list(yaml.safe_load_all((GITOPS / "flux" / "partita.yaml").read_text()))


STALLED = is_("Stalled", "True", "NeverFits")


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        (an("SharedGPUJob"), "waited for"),
        (an("SharedGPUJob", {}), "inProgress"),
        (a_job("Queued"), "current"),
        (a_job("Running"), "current"),
        (a_job("Suspended"), "current"),
        (a_job("Succeeded"), "current"),
        (a_job("Failed"), "failed"),
        (a_job("Failed", observedGeneration=2), "inProgress"),
        (a_job("Queued", conditions=[STALLED]), "failed"),
        (a_job("Queued", conditions=[is_("Stalled", "False")]), "current"),
        (an("GPUPartition"), "waited for"),
        (an("GPUPartition", {}), "inProgress"),
        (a_partition(is_("Ready", "True")), "current"),
        (a_partition(is_("Ready", "True"), observed=2), "inProgress"),
        (a_partition(is_("Ready", "False", "Starting")), "waited for"),
        (a_partition(is_("Ready", "False", "Drained")), "current"),
        (a_partition(is_("Ready", "False"), is_("Degraded", "True")), "failed"),
        (a_partition(is_("Ready", "True"), is_("PolicyHealthy", "False")), "failed"),
    ],
)
def test_flux_judges_as_argo_cd_does_but_waits_for_no_job(obj: Body, expected: str):
    assert flux_health(obj) == expected


def test_flux_checks_what_is_there():
    by_name = {
        d["metadata"]["name"]: d["spec"] for d in read_flux() if d["kind"] == "Kustomization"
    }
    committed = {(kind_of(o), o["metadata"]["name"]) for o in COMMITTED["partita-platform"]}
    for check in by_name["partita"]["healthChecks"]:
        assert (kind_of(check | {"metadata": {}}), check["name"]) in committed
    for spec in by_name.values():
        assert (ROOT / spec["path"]).is_dir()
