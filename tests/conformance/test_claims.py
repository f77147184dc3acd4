"""resource.k8s.io: claims and their allocation, templates, classes, slices, and Pods with claims."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.objects import (
    DRIVER,
    RESOURCE_V1,
    TABLE,
    USER,
    binding,
    causes,
    claim,
    claim_template,
    claims,
    path,
    pod,
    pods,
    refused,
    request,
)
from support.api import Api

SHARE = "9c1f6f3a-4a53-4a0e-8a2e-0a3f6c9b1d2e"


def allocation(**result: Any) -> dict[str, Any]:
    """Return an allocation as the operator writes it, on node n1."""
    chosen = {"request": "gpu", "driver": DRIVER, "pool": "shared-0", "device": "gpu"}
    opaque = {"driver": DRIVER, "parameters": {"kind": "SliceParameters", "memory": "6Gi"}}
    node = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    return {
        "allocationTimestamp": "2026-11-23T09:00:00Z",
        "devices": {
            "results": [
                chosen | {"shareID": SHARE, "consumedCapacity": {"memory": "6Gi"}} | result
            ],
            "config": [{"source": "FromClaim", "requests": ["gpu"], "opaque": opaque}],
        },
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [node]}]},
    }


async def allocate(api: Api, namespace: str, **result: Any) -> Any:
    body = {"status": {"allocation": allocation(**result)}}
    return await api.patch(f"{claims(namespace, 'c')}/status", body)


async def reserve(api: Api, namespace: str, *uids: str) -> Any:
    """Reserve the claim for users that the controller of claims does not know, and keeps."""
    group = {"apiGroup": "example.org", "resource": "groups"}
    users = [group | {"name": f"g{uid}", "uid": uid} for uid in uids]
    return await api.patch(f"{claims(namespace, 'c')}/status", {"status": {"reservedFor": users}})


async def test_a_new_claim_has_defaults_and_no_allocation(api: Api, namespace: str):
    asked = request(capacity={"requests": {"memory": "6Gi", "threads": "50"}})
    body = (await api.post(claims(namespace), claim(asked) | {"status": {"x": 1}})).ok().body
    assert body["spec"]["devices"]["requests"] == [
        {
            "name": "gpu",
            "exactly": {
                "deviceClassName": "shared.gpu.partita.dev",
                "allocationMode": "ExactCount",
                "count": 1,
                "capacity": {"requests": {"memory": "6Gi", "threads": "50"}},
            },
        }
    ]
    assert body["status"] == {}
    assert "generation" not in body["metadata"]


async def test_the_spec_of_a_claim_is_immutable(api: Api, namespace: str):
    (await api.post(claims(namespace), claim())).ok()
    answer = await api.patch(
        claims(namespace, "c"), {"spec": {"devices": {"requests": [request(count=2)]}}}
    )
    refused(answer, "FieldValueInvalid", "spec")
    labelled = await api.patch(claims(namespace, "c"), {"metadata": {"labels": {"a": "b"}}})
    assert labelled.ok().body["metadata"]["labels"] == {"a": "b"}


async def test_an_allocation_is_kept_as_it_was_written(api: Api, namespace: str):
    (await api.post(claims(namespace), claim())).ok()
    body = (await allocate(api, namespace)).ok().body
    assert body["status"] == {"allocation": allocation()}
    through_the_claim = {"status": {"allocation": None}}
    unchanged = (await api.patch(claims(namespace, "c"), through_the_claim)).ok().body
    assert unchanged["status"] == body["status"]


async def test_an_allocation_never_changes_but_may_be_cleared(api: Api, namespace: str):
    path = f"{claims(namespace, 'c')}/status"
    (await api.post(claims(namespace), claim())).ok()
    (await allocate(api, namespace)).ok()
    for change in ({"allocationTimestamp": "2026-11-23T10:00:00Z"}, {"nodeSelector": None}):
        answer = await api.patch(path, {"status": {"allocation": change}})
        refused(answer, "FieldValueInvalid", "status.allocation")
    cleared = (await api.patch(path, {"status": {"allocation": None}})).ok().body
    assert cleared["status"] == {}
    elsewhere = (await allocate(api, namespace, pool="shared-1")).ok().body
    assert elsewhere["status"]["allocation"]["devices"]["results"][0]["pool"] == "shared-1"


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        ({"request": "cpu"}, "request"),
        ({"driver": "A b"}, "driver"),
        ({"pool": "A b"}, "pool"),
        ({"device": "A b"}, "device"),
        ({"shareID": "me"}, "shareID"),
    ],
)
async def test_refuses_a_bad_allocation(
    api: Api, namespace: str, wrong: dict[str, str], found: str
):
    (await api.post(claims(namespace), claim())).ok()
    answer = await allocate(api, namespace, **wrong)
    assert answer.status == 422
    where = f"status.allocation.devices.results[0].{found}"
    refused(answer, "FieldValueInvalid", where)


async def test_only_an_allocated_claim_can_be_reserved(api: Api, namespace: str):
    (await api.post(claims(namespace), claim())).ok()
    early = await reserve(api, namespace, "1")
    assert early.status == 422
    refused(early, "FieldValueForbidden", "status.reservedFor")
    (await allocate(api, namespace)).ok()
    reserved = (await reserve(api, namespace, "1", "2")).ok().body
    assert [user["uid"] for user in reserved["status"]["reservedFor"]] == ["1", "2"]
    twice = await reserve(api, namespace, "1", "1")
    refused(twice, "FieldValueDuplicate", "status.reservedFor[1]")
    released = (await reserve(api, namespace)).ok().body
    assert "reservedFor" not in released["status"]


async def test_a_claim_that_is_being_deleted_gets_no_new_users(api: Api, namespace: str):
    protected = claim()
    protected["metadata"]["finalizers"] = ["resource.kubernetes.io/delete-protection"]
    (await api.post(claims(namespace), protected)).ok()
    (await allocate(api, namespace)).ok()
    (await reserve(api, namespace, "1", "2")).ok()
    (await api.delete(claims(namespace, "c"))).ok()
    more = await reserve(api, namespace, "1", "2", "3")
    refused(more, "FieldValueForbidden", "status.reservedFor")
    (await reserve(api, namespace, "1")).ok()


async def test_claims_are_printed_with_their_state(api: Api, namespace: str):
    async def state() -> str:
        table = (await api.get(claims(namespace), accept=TABLE)).ok().body
        assert [c["name"] for c in table["columnDefinitions"]] == ["Name", "State", "Age"]
        return table["rows"][0]["cells"][1]

    (await api.post(claims(namespace), claim())).ok()
    assert await state() == "pending"
    (await allocate(api, namespace)).ok()
    assert await state() == "allocated"
    (await reserve(api, namespace, "1")).ok()
    assert await state() == "allocated,reserved"


async def test_templates_keep_the_spec_of_their_claims(api: Api, namespace: str):
    templates = path(namespace, "resourceclaimtemplates")
    body = (await api.post(templates, claim_template("t", labels={"a": "b"}))).ok().body
    exactly = body["spec"]["spec"]["devices"]["requests"][0]["exactly"]
    assert (exactly["allocationMode"], exactly["count"]) == ("ExactCount", 1)
    answer = await api.patch(f"{templates}/t", {"spec": {"metadata": {"labels": {"a": "c"}}}})
    refused(answer, "FieldValueInvalid", "spec")


async def test_classes_have_selectors_and_a_generation(api: Api):
    path = f"{RESOURCE_V1}/deviceclasses"
    shared = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "conformance.gpu.partita.dev"},
        "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]},
    }
    own = f"{path}/{shared['metadata']['name']}"
    body = (await api.post(path, shared)).ok().body
    assert body["metadata"]["generation"] == 1
    never = {"spec": {"selectors": [{"cel": {"expression": "false"}}]}}
    assert (await api.patch(own, never)).ok().body["metadata"]["generation"] == 2
    answer = await api.patch(own, {"spec": {"selectors": [{}]}})
    refused(answer, "FieldValueRequired", "spec.selectors[0].cel")
    (await api.delete(own)).ok()


def slice_(**spec: Any) -> dict[str, Any]:
    device = {
        "name": "gpu",
        "allowMultipleAllocations": True,
        "attributes": {"uuid": {"string": "GPU-1a2b3c4d"}},
        "capacity": {"memory": {"value": "40Gi"}, "threads": {"value": "100"}},
        "taints": [{"key": "partita.dev/allocator", "effect": "NoSchedule"}],
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "conformance-0"},
        "spec": {
            "driver": DRIVER,
            "nodeName": "n1",
            "pool": {"name": "shared-0", "generation": 1, "resourceSliceCount": 1},
            "devices": [device],
        }
        | spec,
    }


async def test_slices_describe_the_devices_of_a_node(api: Api):
    path = f"{RESOURCE_V1}/resourceslices"
    body = (await api.post(path, slice_())).ok().body
    own = f"{path}/conformance-0"
    assert body["metadata"]["generation"] == 1
    (device,) = body["spec"]["devices"]
    assert device["capacity"] == {"memory": {"value": "40Gi"}, "threads": {"value": "100"}}
    assert device["taints"][0].pop("timeAdded")
    assert device["taints"] == [{"key": "partita.dev/allocator", "effect": "NoSchedule"}]
    for selector in ("spec.nodeName=n1", f"spec.driver={DRIVER}"):
        assert (await api.get(path, fieldSelector=selector)).names == ["conformance-0"], selector
    table = (await api.get(path, accept=TABLE, fieldSelector="spec.nodeName=n1")).ok().body
    assert table["rows"][0]["cells"][:-1] == ["conformance-0", "n1", DRIVER, "shared-0"]
    newer = {"pool": {"name": "shared-0", "generation": 2, "resourceSliceCount": 1}}
    assert (await api.patch(own, {"spec": newer})).ok().body["metadata"]["generation"] == 2
    for change, field in (
        ({"driver": "other.dev"}, "spec.driver"),
        ({"nodeName": "n2"}, "spec.nodeName"),
        ({"pool": {"name": "other"}}, "spec.pool.name"),
    ):
        answer = await api.patch(own, {"spec": change})
        refused(answer, "FieldValueInvalid", field)
    (await api.delete(own)).ok()


@pytest.mark.parametrize(
    ("wrong", "reason", "field"),
    [
        ({"nodeName": None}, "Required", ""),
        ({"pool": {"name": "a", "generation": 1, "resourceSliceCount": 0}}, "Invalid",
         ".pool.resourceSliceCount"),
        ({"devices": [{"name": "a"}, {"name": "a"}]}, "Duplicate", ".devices[1]"),
    ],
)  # fmt: skip
async def test_refuses_a_bad_slice(api: Api, wrong: dict[str, Any], reason: str, field: str):
    answer = await api.post(f"{RESOURCE_V1}/resourceslices", slice_(**wrong))
    refused(answer, f"FieldValue{reason}", f"spec{field}")


# -- Pods -------------------------------------------------------------------------------------

BY_TEMPLATE = {"name": "gpu", "resourceClaimTemplateName": "gpu-6gi"}


async def test_the_names_of_a_pods_claims_stand_in_its_status(api: Api, namespace: str):
    obj = pod(containers=[USER], resourceClaims=[BY_TEMPLATE])
    (await api.post(pods(namespace), obj)).ok()
    path = f"{pods(namespace, 'p')}/status"
    named = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu-x7k2q"}]}
    body = (await api.patch(path, {"status": named})).ok().body
    assert body["status"]["resourceClaimStatuses"] == named["resourceClaimStatuses"]
    unknown = {"resourceClaimStatuses": [{"name": "cpu", "resourceClaimName": "x"}]}
    answer = await api.patch(path, {"status": unknown})
    cause = ("FieldValueInvalid", "status.resourceClaimStatuses[0].name")
    assert causes(answer.body) == {cause}


async def test_a_gated_pod_says_so_and_cannot_be_bound(api: Api, namespace: str):
    gates = [{"name": "partita.dev/allocation"}, {"name": "example.org/other"}]
    body = (await api.post(pods(namespace), pod(schedulingGates=gates))).ok().body
    (condition,) = body["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "False")
    assert condition["reason"] == "SchedulingGated"
    early = await api.post(f"{pods(namespace, 'p')}/binding", binding())
    assert early.status == 409
    assert "has non-empty .spec.schedulingGates" in early.body["message"]
    for left in (gates[1:], []):
        changed = await api.patch(pods(namespace, "p"), {"spec": {"schedulingGates": left}})
        assert changed.ok().body["spec"].get("schedulingGates", []) == left
    (await api.post(f"{pods(namespace, 'p')}/binding", binding())).ok()


async def test_a_gate_cannot_be_added(api: Api, namespace: str):
    (await api.post(pods(namespace), pod(schedulingGates=[{"name": "a.b/c"}]))).ok()
    more = {"spec": {"schedulingGates": [{"name": "a.b/c"}, {"name": "a.b/d"}]}}
    answer = await api.patch(pods(namespace, "p"), more)
    refused(answer, "FieldValueForbidden", "spec.schedulingGates[1].name")
