"""Only the operator sets what is named partita.dev/; Kubernetes' own controllers can do their work."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from manifests.pods import CORE, OWNER, claim, job_path, owner_of, pod, refused, submitted
from support.api import Api
from support.clusters import ApiServer
from support.polling import until

SERVERS = "/apis/partita.dev/v1alpha1/gpuservers"
SET_BY_OPERATOR = "is set by Partita's operator alone"
RESERVED: dict[str, Any] = {
    "labels": {"partita.dev/component": "server"},
    "annotations": {"partita.dev/job-uid": "of-another"},
    "finalizers": ["partita.dev/ledger"],
}
OTHERS: dict[str, Any] = {
    "labels": {"app": "x", "partita.dev.example.org/component": "server"},
    "annotations": {"sim.partita.dev/duration": "1s"},
    "finalizers": ["example.org/stays"],
}


@contextlib.asynccontextmanager
async def acting_as(server: ApiServer, user: str) -> AsyncIterator[Api]:
    headers = {"Authorization": f"Bearer {server.token}", "Impersonate-User": user}
    async with aiohttp.ClientSession(headers=headers) as session:
        yield server.api(session)


def pod_of(job: dict[str, Any], name: str = "train-1") -> dict[str, Any]:
    """A Pod as the operator makes it for a job."""
    body = pod(name)
    owners = [owner_of(job)]
    body["metadata"] |= copy.deepcopy(RESERVED | {"finalizers": [], "ownerReferences": owners})
    return body


@pytest.fixture
async def collected(api: Api, enforced: str) -> str:
    """A namespace in which the garbage collector knows jobs: it looks for new kinds every 30 s."""
    await submitted(api, enforced)
    path = job_path(enforced)
    (await api.delete(path, {"propagationPolicy": "Foreground"})).ok()
    await api.gone(path, 90)
    return enforced


@pytest.mark.parametrize("kind", RESERVED)
@pytest.mark.parametrize(
    "user", ["mallory", "system:serviceaccount:kube-system:replicaset-controller"]
)
async def test_nobody_else_makes_a_pod_with_metadata_of_ours(
    api: Api, operator: Api, api_server: ApiServer, enforced: str, kind: str, user: str
) -> None:
    path = f"{CORE}/{enforced}/pods"
    body = pod()
    body["metadata"] |= copy.deepcopy({kind: RESERVED[kind], "ownerReferences": [OWNER]})
    (await operator.post(path, body, dryRun="All")).ok()
    del body["metadata"]["ownerReferences"]
    group = {"apiGroup": "rbac.authorization.k8s.io"}
    rights = {
        "metadata": {"name": "makes-pods"},
        "roleRef": group | {"kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [group | {"kind": "User", "name": user}],
    }
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{enforced}/rolebindings"
    (await api.post(rbac, rights)).ok()
    allowed = copy.deepcopy(body)
    allowed["metadata"][kind] = OTHERS[kind]
    async with acting_as(api_server, user) as other:

        async def has_rights() -> bool:
            return (await other.post(path, allowed, dryRun="All")).status < 300

        await until(has_rights)  # the authorizer reads new bindings after a moment
        answer = await other.post(path, body, dryRun="All")
        refused(answer, "Partita's operator alone")


@pytest.mark.parametrize("kind", ["labels", "annotations"])
async def test_nobody_else_changes_metadata_of_ours(
    api: Api, operator: Api, enforced: str, kind: str
) -> None:
    path = f"{CORE}/{enforced}/pods"
    (await operator.post(path, pod_of(await submitted(api, enforced)))).ok()
    (key,) = RESERVED[kind]
    for change in ({key: "other"}, {key: None}, {"partita.dev/new": "1"}, None):
        answer = await api.patch(f"{path}/train-1", {"metadata": {kind: change}}, dryRun="All")
        assert answer.status == 403, change
        assert (
            f"partita.dev/{'new' if change and key not in change else key[12:]}"
            in (answer.body["message"])
        )
        assert SET_BY_OPERATOR in answer.body["message"]
    (await api.patch(f"{path}/train-1", {"metadata": {kind: OTHERS[kind]}})).ok()


async def test_nobody_else_sets_and_removes_finalizers_of_ours(
    api: Api, operator: Api, enforced: str
) -> None:
    path = f"{CORE}/{enforced}/pods/train-1"
    (await operator.post(f"{CORE}/{enforced}/pods", pod_of(await submitted(api, enforced)))).ok()
    answer = await api.patch(path, {"metadata": {"finalizers": ["partita.dev/x"]}}, dryRun="All")
    refused(answer, "finalizers of partita.dev/ are set and removed by Partita's operator alone")
    for finalizers in (["example.org/stays"], None):
        (await api.patch(path, {"metadata": {"finalizers": finalizers}})).ok()


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
async def test_the_garbage_collector_deletes_a_jobs_pod(
    api: Api, operator: Api, collected: str, policy: str
) -> None:
    (await operator.post(f"{CORE}/{collected}/pods", pod_of(await submitted(api, collected)))).ok()
    (await api.delete(job_path(collected), {"propagationPolicy": policy})).ok()
    await api.gone(job_path(collected))
    await api.gone(f"{CORE}/{collected}/pods/train-1")


async def test_the_garbage_collector_alone_takes_a_job_off_its_pod(
    api: Api, operator: Api, api_server: ApiServer, enforced: str
) -> None:
    path = f"{CORE}/{enforced}/pods/train-1"
    (await operator.post(f"{CORE}/{enforced}/pods", pod_of(await submitted(api, enforced)))).ok()
    accounts = "system:serviceaccount:kube-system"
    orphaned = {"metadata": {"ownerReferences": None}}
    answer = await api.patch(path, orphaned)
    refused(answer, "leave metadata.ownerReferences as it is")
    async with acting_as(api_server, f"{accounts}:generic-garbage-collector") as collector:
        (await collector.patch(path, orphaned)).ok()
        adopted = {"metadata": {"ownerReferences": [OWNER]}}
        assert (await collector.patch(path, adopted, dryRun="All")).status == 403


CLAIMS = "/apis/resource.k8s.io/v1/namespaces"


def told(name: str, note: str, text: str) -> dict[str, Any]:
    """A claim with an annotation of ours."""
    body = claim(name)
    body["metadata"]["annotations"] = {f"partita.dev/{note}": text}
    return body


async def test_nobody_else_says_why_a_claim_waits(api: Api, operator: Api, enforced: str) -> None:
    path = f"{CLAIMS}/{enforced}/resourceclaims"
    answer = await api.post(path, told("forged", "status", "Allocated: 8.0 GiB"), dryRun="All")
    refused(answer, f"partita.dev/status {SET_BY_OPERATOR}")
    (await api.post(path, told("waits", "gpu-memory", "6Gi"))).ok()
    change = {"metadata": {"annotations": {"partita.dev/status": "NeverFits: it is too large"}}}
    (await operator.patch(f"{path}/waits", change)).ok()
    for name in ("status", "gpu-memory"):
        for value in ("other", None):
            change = {"metadata": {"annotations": {f"partita.dev/{name}": value}}}
            answer = await api.patch(f"{path}/waits", change, dryRun="All")
            assert answer.status == 403, change
    (await api.patch(f"{path}/waits", {"metadata": {"labels": {"team": "a"}}})).ok()
    (await api.delete(f"{path}/waits")).ok()


async def test_a_jobs_pod_can_be_evicted_and_deleted(
    api: Api, operator: Api, enforced: str
) -> None:
    path = f"{CORE}/{enforced}/pods"
    job = await submitted(api, enforced)
    for name in ("train-1", "train-2"):
        (await operator.post(path, pod_of(job, name))).ok()
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "train-1"}}
    (await api.post(f"{path}/train-1/eviction", eviction)).ok()
    (await api.delete(f"{path}/train-2")).ok()
    for name in ("train-1", "train-2"):
        await api.gone(f"{path}/{name}")


async def test_an_administrator_deletes_a_gpu_and_the_operator_lets_it_go(
    api: Api, operator: Api, enforced: str
) -> None:
    meta = {"name": "gpus-9", **RESERVED}
    server = {
        "apiVersion": "partita.dev/v1alpha1",
        "kind": "GPUServer",
        "metadata": meta,
        "spec": {"partition": "gpus", "mode": "MPS", "maxJobs": 4},
    }
    (await operator.post(SERVERS, server)).ok()
    path = f"{SERVERS}/gpus-9"
    (await api.patch(path, {"spec": {"drainSince": "2026-01-01T00:00:00Z"}})).ok()
    (await api.patch(path, {"metadata": {"labels": {"team": "a"}}})).ok()
    for change in ({"finalizers": None}, {"labels": {"partita.dev/component": None}}):
        assert (await api.patch(path, {"metadata": change})).status == 403
    (await api.delete(path)).ok()
    answer = await api.patch(path, {"metadata": {"finalizers": None}})
    refused(answer, "a GPUServer that is deleted is gone once its jobs have ended")
    (await operator.patch(path, {"metadata": {"finalizers": None}})).ok()
    await api.gone(path)
