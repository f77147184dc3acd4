"""Who may allocate Partita's devices, and what the operator may change of others' objects."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from manifests.pods import CORE, OURS, claim, pod, refused
from support.api import STRATEGIC, Api
from support.builders import owner

RESOURCES = "/apis/resource.k8s.io/v1"
FINALIZER = "resource.kubernetes.io/delete-protection"


def devices(driver: str = "gpu.partita.dev", config: str = "gpu.partita.dev") -> dict[str, Any]:
    """An allocation's devices."""
    return {
        "results": [{"request": "gpu", "driver": driver, "pool": "shared-0", "device": "gpu"}],
        "config": [
            {"source": "FromClaim", "opaque": {"driver": config, "parameters": {"memory": "6Gi"}}}
        ],
    }


def allocated(found: dict[str, Any] | None) -> dict[str, Any]:
    """A patch that sets or clears an allocation."""
    at = "2026-01-01T00:00:00Z"
    allocation = None if found is None else {"allocationTimestamp": at, "devices": found}
    return {"status": {"allocation": allocation}}


@pytest.fixture
async def claims(api: Api, enforced: str) -> str:
    """Path of the claims of a namespace in which the policies hold; it has one of ours."""
    path = f"{RESOURCES}/namespaces/{enforced}/resourceclaims"
    (await api.post(path, claim("ours"))).ok()
    return path


async def test_the_operator_allocates_and_releases(operator: Api, claims: str) -> None:
    path = f"{claims}/ours"
    (await operator.patch(path, {"metadata": {"finalizers": [FINALIZER]}})).ok()
    (await operator.patch(f"{path}/status", allocated(devices()))).ok()
    (await operator.patch(f"{path}/status", allocated(None))).ok()
    (await operator.patch(path, {"metadata": {"finalizers": None}})).ok()


async def test_nobody_else_allocates_our_devices(api: Api, operator: Api, claims: str) -> None:
    status = f"{claims}/ours/status"
    said = "only Partita's operator allocates devices of gpu.partita.dev"
    refused(await api.patch(status, allocated(devices())), said)
    (await operator.patch(status, allocated(devices()))).ok()
    reserved = {"status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}}
    (await api.patch(status, reserved)).ok()
    (await api.patch(status, {"status": {"reservedFor": None}})).ok()
    (await api.patch(status, allocated(None))).ok()


async def test_others_allocate_others_devices_and_the_operator_does_not(
    api: Api, operator: Api, claims: str
) -> None:
    (await api.post(claims, claim("others", "gpu.nvidia.com"))).ok()
    status = f"{claims}/others/status"
    said = "Partita's operator allocates and releases devices of gpu.partita.dev only"
    nvidia = devices("gpu.nvidia.com", "gpu.nvidia.com")
    refused(await operator.patch(status, allocated(nvidia)), said)
    mixed = devices(config="gpu.nvidia.com")
    refused(await operator.patch(f"{claims}/ours/status", allocated(mixed)), said)
    (await api.patch(status, allocated(nvidia))).ok()
    refused(await operator.patch(status, allocated(None)), said)


@pytest.mark.parametrize("kind", ["resourceclaims", "resourceclaimtemplates"])
@pytest.mark.parametrize("way", ["exactly", "firstAvailable"])
@pytest.mark.parametrize(
    ("toleration", "device_class", "status"),
    [
        ({"key": "partita.dev/allocator", "operator": "Exists"}, OURS, 403),
        ({"key": "partita.dev/allocator", "operator": "Exists"}, "any.example.org", 403),
        ({"operator": "Exists"}, OURS, 403),
        ({"operator": "Exists"}, "gpu.nvidia.com", 201),
        ({"key": "example.org/other", "operator": "Exists"}, OURS, 201),
    ],
)
async def test_no_claim_tolerates_the_taint_of_our_devices(
    api: Api,
    claims: str,
    kind: str,
    way: str,
    toleration: dict[str, str],
    device_class: str,
    status: int,
) -> None:
    body = claim("any", device_class, tolerations=[toleration])
    if way == "firstAvailable":
        (request,) = body["spec"]["devices"]["requests"]
        request["firstAvailable"] = [{"name": "first", **request.pop("exactly")}]
    if kind == "resourceclaimtemplates":
        body["spec"] = {"spec": body["spec"]}
    path = claims.replace("resourceclaims", kind)
    answer = await api.post(path, body, dryRun="All")
    assert answer.status == status, answer.body
    if status == 403:
        assert "no claim may tolerate the taint partita.dev/allocator" in answer.body["message"]


async def test_of_a_claim_the_operator_changes_annotations_and_the_finalizer(
    api: Api, operator: Api, claims: str
) -> None:
    path, said = f"{claims}/ours", "of a claim, Partita's operator changes annotations"
    (await api.patch(path, {"metadata": {"annotations": {"a": "b"}}})).ok()
    (await operator.patch(path, {"metadata": {"annotations": {"partita.dev/status": "x"}}})).ok()
    for change in (
        {"annotations": {"a": None}},
        {"annotations": {"a": "c"}},
        {"annotations": {"c": "d"}},
        {"labels": {"partita.dev/a": "b"}},
        {"finalizers": ["example.org/stays"]},
        {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]},
    ):
        refused(await operator.patch(path, {"metadata": change}), said)
    (await api.post(claims, claim("others", "gpu.nvidia.com"))).ok()
    answer = await operator.patch(f"{claims}/others", {"metadata": {"finalizers": [FINALIZER]}})
    refused(answer, "Partita's operator changes claims of its own device classes only")


async def test_of_a_pod_the_operator_changes_its_own_metadata_and_its_gate(
    api: Api, operator: Api, enforced: str
) -> None:
    path = f"{CORE}/{enforced}/pods"
    body = pod("gated")
    body["metadata"]["labels"] = {"app": "x"}
    gates = [{"name": "kueue.x-k8s.io/admission"}, {"name": "partita.dev/allocation"}]
    body["spec"]["schedulingGates"] = gates
    (await api.post(path, body)).ok()
    path += "/gated"
    for change in (
        {"labels": {"app": None}},
        {"annotations": {"a": "b"}},
        {"finalizers": ["example.org/stays"]},
    ):
        refused(await operator.patch(path, {"metadata": change}), "of the metadata of a Pod")
    main = {"name": "main", "image": "example.org/another:1"}
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    for change in (
        {"containers": [main]},
        {"nodeSelector": {"kubernetes.io/hostname": "a"}},
        {"tolerations": [{"key": "example.org/other", "operator": "Exists"}]},
        {"affinity": {"nodeAffinity": required}},
        {"activeDeadlineSeconds": 1},
    ):
        patch = {"spec": change}
        answer = await operator.call("PATCH", path, patch, content_type=STRATEGIC)
        refused(answer, "of the spec of a Pod, Partita's operator changes")
    answer = await operator.patch(path, {"spec": {"schedulingGates": None}})
    refused(answer, "removes no other scheduling gate than partita.dev/allocation")
    (await operator.patch(path, {"metadata": {"labels": {"partita.dev/component": "claim"}}})).ok()
    (await operator.patch(path, {"spec": {"schedulingGates": gates[:1]}})).ok()
    found = (await api.get(path)).ok().body["spec"]["schedulingGates"]
    assert found == gates[:1]


LABELS = {"app.kubernetes.io/part-of": "partita"}


def device_object(kind: str, name: str, labels: dict[str, str] = LABELS) -> dict[str, Any]:
    """A class, slice or template."""
    spec: dict[str, Any] = {
        "deviceclasses": {"selectors": [{"cel": {"expression": "false"}}]},
        "resourceslices": {
            "driver": "gpu.partita.dev",
            "nodeName": "node-a",
            "pool": {"name": "shared-0", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu"}],
        },
        "resourceclaimtemplates": {"spec": claim("any")["spec"]},
    }[kind]
    return {"metadata": {"name": name, "labels": labels}, "spec": spec}


@pytest.mark.parametrize(
    ("kind", "name", "other"),
    [
        ("deviceclasses", "shared.gpu.partita.dev", "gpu.nvidia.com"),
        ("resourceslices", "shared-0.gpu.partita.dev", "node-a-gpu.nvidia.com-x7k2p"),
        ("resourceclaimtemplates", "partita-shared-1048576", "gpu-6gi"),
    ],
)
async def test_the_operator_writes_classes_slices_and_templates_of_its_own_only(
    api: Api, operator: Api, claims: str, kind: str, name: str, other: str
) -> None:
    namespaced = kind == "resourceclaimtemplates"
    path = claims.replace("resourceclaims", kind) if namespaced else f"{RESOURCES}/{kind}"
    own = device_object(kind, name)
    answer = await operator.post(path, device_object(kind, other), dryRun="All")
    refused(answer, "Partita's operator writes device classes and resource slices of")
    answer = await operator.post(path, device_object(kind, name, {}), dryRun="All")
    refused(answer, "only objects with the label app.kubernetes.io/part-of=partita")
    if kind == "resourceslices":
        foreign = copy.deepcopy(own)
        foreign["spec"]["driver"] = "gpu.nvidia.com"
        answer = await operator.post(path, foreign, dryRun="All")
        refused(answer, "publishes devices of the driver gpu.partita.dev only")
    (await operator.post(path, own)).ok()
    (await api.post(path, device_object(kind, other))).ok()
    assert (await operator.delete(f"{path}/{other}")).status == 403
    (await operator.delete(f"{path}/{name}")).ok()
    (await api.delete(f"{path}/{other}")).ok()


USERS = {
    "partita.dev/application": "resnet",
    "partita.dev/expected-duration": "1h",
    "partita.dev/framework": "PyTorch",
    "partita.dev/gpu-memory": "6Gi",
    "partita.dev/gpu-threads": "50",
    "partita.dev/memory-limit": "8Gi",
    "partita.dev/partition": "shared",
    "partita.dev/processes": "2",
}


async def test_users_say_by_annotations_what_a_pod_needs_when_it_is_created(
    api: Api, claims: str, enforced: str
) -> None:
    path = f"{CORE}/{enforced}/pods"
    body = pod("annotated")
    body["metadata"]["annotations"] = USERS
    (await api.post(path, body)).ok()
    for key in USERS:
        answer = await api.patch(
            f"{path}/annotated", {"metadata": {"annotations": {key: "other"}}}, dryRun="All"
        )
        refused(answer, f"{key} is set by Partita's operator alone")
    body["metadata"] = {"name": "labelled", "labels": {"partita.dev/application": "resnet"}}
    refused(await api.post(path, body), "is set by Partita's operator alone")


OWN = "train-1.shared-0.partita.dev"
"""The name of a claim of a job."""


async def test_the_operator_alone_creates_and_deletes_the_claims_of_jobs(
    api: Api, operator: Api, claims: str
) -> None:
    said = "names of claims that end with .partita.dev are those of Partita's operator"
    for name in (OWN, "anything.partita.dev"):
        refused(await api.post(claims, claim(name), dryRun="All"), said)
    refused(await api.post(claims, claim(OWN, "gpu.nvidia.com"), dryRun="All"), said)
    (await api.post(claims, claim("partita.dev"), dryRun="All")).ok()
    (await operator.post(claims, claim(OWN))).ok()
    (await operator.delete(f"{claims}/{OWN}")).ok()
    mine = "creates and deletes only claims whose names end with .partita.dev"
    refused(await operator.post(claims, claim("users"), dryRun="All"), mine)
    refused(await operator.delete(f"{claims}/ours", {"dryRun": ["All"]}), mine)


@pytest.mark.parametrize("kind", ["containers", "initContainers"])
async def test_no_pod_of_others_uses_the_claim_of_a_job(api: Api, enforced: str, kind: str) -> None:
    path = f"{CORE}/{enforced}/pods"

    def using(name: str) -> dict[str, Any]:
        body = pod()
        body["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": name}]
        user = {"name": "user", "image": "example.org/image:1"}
        user["resources"] = {"claims": [{"name": "gpu"}]}
        body["spec"].setdefault(kind, []).append(user)
        return body

    said = "claims whose names end with .partita.dev are those of Partita's jobs"
    refused(await api.post(path, using(OWN), dryRun="All"), said)
    (await api.post(path, using("ours"), dryRun="All")).ok()


async def test_no_claim_gets_a_job_as_its_owner(api: Api, claims: str) -> None:
    body = claim("forged")
    body["metadata"]["ownerReferences"] = [owner("SharedGPUJob", "j", "u")]
    assert (await api.post(claims, body, dryRun="All")).status == 403
