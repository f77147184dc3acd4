"""From a commit to running jobs, by a real Argo CD."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from apiserver.binaries import MANIFESTS
from apiserver.build import assets
from gitops.argocd.cluster_stand_in import DEPLOYMENT, GROUP, ClusterStandIn, write_repository
from gitops.argocd.recording import Applications
from gitops.argocd.servers import ArgoCD, Repository
from gitops.lua import actions, health, scripts
from gitops.test_examples import read_flux
from gitops.test_lua import a_job, a_partition, a_server, is_
from support.api import Api
from support.clusters import ApiServer
from support.kubectl import Kubectl

Body = dict[str, Any]

PARTITION = f"{GROUP}/gpupartitions/shared"
SERVERS = f"{GROUP}/gpuservers"
JOBS_HPC = f"{GROUP}/namespaces/team-hpc/sharedgpujobs"
QMCPACK = f"{JOBS_HPC}/qmcpack-nio"
RESNET = f"{GROUP}/namespaces/team-vision/sharedgpujobs/resnet50"
POD = "/api/v1/namespaces/team-hpc/pods/qmcpack-nio-1"


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return write_repository(tmp_path / "repository")


@pytest.fixture
async def cluster(api: Api, api_server: ApiServer, tmp_path: Path) -> AsyncIterator[ClusterStandIn]:
    cluster = ClusterStandIn(api, api_server, tmp_path)
    yield cluster
    print(cluster.logs())  # noqa: T201 - pytest shows it where the test has failed
    cluster.stop()


@pytest.fixture
async def applications(api: Api, argocd: ArgoCD) -> AsyncIterator[Applications]:
    found = Applications(api)
    async with found.recording():
        yield found


def synced(status: Body, commit: str) -> bool:
    sync = status.get("sync", {})
    return (sync.get("status"), sync.get("revision")) == ("Synced", commit)


def shown(status: Body, kind: str, name: str) -> tuple[str, str]:
    """The health of one resource of an Application, and what it says to it."""
    for resource in status.get("resources", []):
        if (resource["kind"], resource["name"]) == (kind, name):
            found = resource.get("health", {})
            return found.get("status", ""), found.get("message", "")
    return "", ""


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert text.count(old) == 1, text
    file.write_text(text.replace(old, new))


@dataclass(frozen=True)
class Day:
    """What a day of commits happens to."""

    cluster: ClusterStandIn
    applications: Applications
    repository: Repository
    kubectl: Kubectl

    @property
    def examples(self) -> Path:
        return self.repository.folder / "examples" / "gitops"

    @property
    def partition(self) -> Path:
        return self.examples / "platform" / "partition.yaml"

    async def commit(self, message: str) -> str:
        commit = self.repository.commit(message)
        await self.applications.refresh()
        return commit

    async def all_well(self, commit: str) -> Body:
        """Wait until the platform is healthy and the jobs run; return the platform's status."""
        for team in ("jobs-team-hpc", "jobs-team-vision"):
            await self.shows(team, commit, "Progressing")
        return await self.shows("partita", commit, "Healthy")

    async def shows(self, application: str, commit: str, health: str) -> Body:
        def so(status: Body) -> bool:
            return synced(status, commit) and status.get("health", {}).get("status") == health

        return await self.applications.until(application, so)

    async def phase(self, job: str, phase: str) -> Body:
        return await self.cluster.until(job, lambda j: j.get("status", {}).get("phase") == phase)

    async def policy(self, name: str) -> None:
        await self.cluster.until(PARTITION, lambda p: p["status"]["policy"]["active"] == name)


async def test_a_day_of_commits(
    cluster: ClusterStandIn, applications: Applications, repository: Repository, kubectl: Kubectl
) -> None:
    day = Day(cluster, applications, repository, kubectl)
    await the_first_commit_runs_jobs(day)
    pod = await cluster.until(POD, lambda p: p["status"].get("phase") == "Running")
    await what_people_do_by_hand_is_no_drift(day)
    await another_policy_decides(day)
    await mistakes_are_told(day)
    await they_are_undone(day)
    await what_the_api_server_refuses_is_told(day)
    now = await cluster.until(POD, lambda p: p["status"].get("phase") == "Running")
    assert now["metadata"]["uid"] == pod["metadata"]["uid"]
    job = await day.phase(QMCPACK, "Running")
    assert len(job["status"]["attempts"]) == 1
    await what_is_removed_goes(day)
    states = {v.get("status", {}).get("sync", {}).get("status") for v in applications.versions}
    assert {"Synced", "OutOfSync"} <= states  # commits that are not applied yet are seen, too
    assert applications.healed() == []


async def the_first_commit_runs_jobs(day: Day) -> None:
    """CRDs, then the operator, then the partition; jobs as soon as they can be."""
    (await day.kubectl("apply", f"--filename={day.examples / 'argocd'}")).ok()
    await day.cluster.until(DEPLOYMENT, bool)
    assert await day.cluster.get(PARTITION) is None  # its wave waits for the operator
    await day.cluster.run_operator()
    for job in (QMCPACK, RESNET):
        await day.phase(job, "Running")
    status = await day.all_well(day.repository.head)
    assert shown(status, "GPUPartition", "shared") == ("Healthy", "2 of 2 GPUs are ready")


async def what_people_do_by_hand_is_no_drift(day: Day) -> None:
    """By `kubectl scale`, and by what Argo CD's own actions write; nor is any of it undone."""
    head, api = day.repository.head, day.cluster.api
    (await day.kubectl("scale", "gpart", "shared", "--replicas=3")).ok()
    await day.cluster.until(PARTITION, lambda p: p["status"]["gpus"] == 3)
    annotation = {"partita.dev/retry": "2026-11-21T00:00:00Z"}
    (await api.patch(QMCPACK, {"metadata": {"annotations": annotation}})).ok()
    (await api.patch(RESNET, {"spec": {"suspend": True}})).ok()
    await day.phase(RESNET, "Suspended")
    await day.applications.refresh()
    await day.shows("jobs-team-vision", head, "Suspended")
    (await api.patch(RESNET, {"spec": {"suspend": False}})).ok()
    await day.phase(RESNET, "Running")
    await day.applications.refresh()
    await day.all_well(head)
    assert (await day.cluster.until(PARTITION, bool))["spec"]["gpus"] == 3


async def another_policy_decides(day: Day) -> None:
    """The one that was only a shadow; and Git says again how many GPUs."""
    edit(day.partition, "name: fifo\n    shadow: [tetris]", "name: tetris\n    shadow: [fifo]")
    commit = await day.commit("Let tetris decide")
    await day.policy("tetris")
    await day.cluster.until(PARTITION, lambda p: p["spec"]["gpus"] == 2)
    await day.all_well(commit)


async def mistakes_are_told(day: Day) -> None:
    """A policy that is not there, a job that can never run, what is no YAML at all."""
    edit(day.partition, "name: tetris\n", "name: tetriss\n")
    teams = day.examples / "teams"
    job = (teams / "team-hpc" / "qmcpack.yaml").read_text()
    lost = job.replace("name: qmcpack-nio", "name: lost").replace("shared", "sharde")
    (teams / "team-hpc" / "lost.yaml").write_text(lost)
    (teams / "team-vision" / "broken.yaml").write_text(job + "  broken: [")
    commit = await day.commit("Make three mistakes")
    status = await day.shows("partita", commit, "Degraded")
    state, said = shown(status, "GPUPartition", "shared")
    assert state == "Degraded"
    assert "tetriss" in said
    status = await day.shows("jobs-team-hpc", commit, "Degraded")
    state, said = shown(status, "SharedGPUJob", "lost")
    assert state == "Degraded"
    assert "sharde" in said
    status = await day.applications.until(
        "jobs-team-vision",
        lambda s: any(c["type"] == "ComparisonError" for c in s.get("conditions", [])),
    )
    assert "broken.yaml" in str(status["conditions"])
    for name in (QMCPACK, RESNET):
        await day.phase(name, "Running")


async def they_are_undone(day: Day) -> None:
    commit = day.repository.revert()
    await day.applications.refresh()
    await day.all_well(commit)
    assert await day.cluster.get(f"{JOBS_HPC}/lost") is None
    await day.policy("tetris")


async def what_the_api_server_refuses_is_told(day: Day) -> None:
    """In our words; and the commit that mends it is not held up by attempts at the other."""
    team = day.examples / "teams" / "team-hpc"
    job = (team / "qmcpack.yaml").read_text()
    refused = job.replace("name: qmcpack-nio", "name: refused")
    both = refused.replace("gpuMemory: 6Gi", "gpuMemory: 6Gi\n  slice: small")
    (team / "refused.yaml").write_text(both)
    await day.commit("Ask for a slice and for memory")
    await day.applications.until(
        "jobs-team-hpc",
        lambda s: "write either slice" in str(s.get("operationState", {}).get("syncResult")),
    )
    commit = day.repository.revert()
    await day.applications.refresh()
    await day.all_well(commit)


async def what_is_removed_goes(day: Day) -> None:
    """A team's jobs, its last one too, and then the partition with its GPUs."""
    for team, job in (("team-hpc", "qmcpack"), ("team-vision", "resnet50")):
        (day.examples / "teams" / team / f"{job}.yaml").unlink()
        (day.examples / "teams" / team / "README.md").write_text("No job now.\n")
    await day.commit("Be done with the jobs")
    for path in (QMCPACK, RESNET, POD):
        await day.cluster.api.gone(path)
    day.partition.unlink()
    edit(day.partition.with_name("kustomization.yaml"), "  - partition.yaml\n", "")
    commit = await day.commit("Give the GPUs back")
    await day.cluster.api.gone(PARTITION)
    await day.cluster.until(SERVERS, lambda servers: not servers["items"])
    await day.shows("partita", commit, "Healthy")


@pytest.mark.parametrize(
    "obj",
    [
        a_job("Running", reason="Running", message="on a node"),
        a_job("Queued", conditions=[is_("Stalled", "True", "NeverFits", "ask for less")]),
        a_job("Failed", reason="Failed", message="exit code 1"),
        a_partition(is_("Ready", "True", "AllGPUsReady", "2 of 2 GPUs are ready")),
        a_partition(is_("Ready", "False"), is_("Degraded", "True", "PolicyFailed", "no policy")),
        a_server(is_("Ready", "True", message="ok")),
        a_server(is_("Ready", "True"), drainSince="2026-11-21T08:00:00Z"),
    ],
)
def test_argo_cds_lua_finds_what_ours_finds(argocd: ArgoCD, obj: Body, tmp_path: Path) -> None:
    file = tmp_path / "object.yaml"
    file.write_text(yaml.safe_dump(obj))
    state, message = health(obj)
    told = argocd.admin("resource-overrides", "health", str(file))
    assert f"STATUS: {state}\n" in told
    assert f"MESSAGE: {message}\n" in told
    if f"resource.customizations.actions.partita.dev_{obj['kind']}" in scripts():
        lines = argocd.admin("resource-overrides", "list-actions", str(file)).splitlines()[1:]
        offered = {line.split()[0] for line in lines if line.split()[1] == "false"}
        assert offered == actions(obj)


def test_argo_cd_runs_the_actions(argocd: ArgoCD, tmp_path: Path) -> None:
    file = tmp_path / "object.yaml"
    for obj, action, line in (
        (a_job("Failed"), "retry", "partita.dev/retry: "),
        (a_job("Running"), "suspend", "suspend: true"),
        (a_job("Suspended"), "resume", "suspend: false"),
        (a_server(is_("Ready", "True")), "drain", "drainSince: "),
    ):
        file.write_text(yaml.safe_dump(obj))
        assert line in argocd.admin("resource-overrides", "run-action", str(file), action)


def test_flux_never_prunes_what_all_else_hangs_on(tmp_path: Path) -> None:
    flux = {d["metadata"]["name"]: d["spec"] for d in read_flux() if d["kind"] == "Kustomization"}
    repository = write_repository(tmp_path / "repository")
    platform = repository.folder / "examples" / "gitops" / "platform"
    patched = yaml.safe_load((platform / "kustomization.yaml").read_text())
    patched["patches"] = flux["partita"]["patches"]
    (platform / "kustomization.yaml").write_text(yaml.safe_dump(patched))
    built = subprocess.check_output([assets(what=MANIFESTS) / "kustomize", "build", platform])
    kept = {
        obj["kind"]
        for obj in yaml.safe_load_all(built)
        if obj["metadata"].get("annotations", {}).get("kustomize.toolkit.fluxcd.io/prune")
        == "disabled"
    }
    assert kept == {"Namespace", "CustomResourceDefinition"}
