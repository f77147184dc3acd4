"""What is wrong with built-in objects, and how that is named."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.objects import MAIN, USER, claim, path, pod, refused, request, template, workload
from support.api import Api

ADDED, CPU = {"name": "a", "deviceClassName": "b"}, {"driver": "d.io", "parameters": {}}
BY_TEMPLATE = {"name": "gpu", "resourceClaimTemplateName": "gpu-6gi"}


@pytest.mark.parametrize(
    ("wrong", "reason", "field"),
    [
        ({"name": "gpu"}, "Required", ""),
        (request() | {"firstAvailable": [ADDED]}, "Invalid", ""),
        ({"name": "gpu", "exactly": {}}, "Required", ".exactly.deviceClassName"),
        (request(allocationMode="Some"), "NotSupported", ".exactly.allocationMode"),
        (request(allocationMode="All", count=2), "Invalid", ".exactly.count"),
        (request("A b"), "Invalid", ".name"),
    ],
)
async def test_of_a_claims_request(
    api: Api, namespace: str, wrong: dict[str, Any], reason: str, field: str
):
    answer = await api.post(path(namespace, "resourceclaims"), claim(wrong))
    assert answer.body["reason"] == "Invalid"
    refused(answer, f"FieldValue{reason}", f"spec.devices.requests[0]{field}")


@pytest.mark.parametrize(
    ("plural", "wrong", "reason", "field"),
    [
        ("resourceclaims", claim(request(), request()), "Duplicate", "devices.requests[1]"),
        ("resourceclaims", claim(config=[{"requests": ["gpu"]}]), "Required",
         "devices.config[0].opaque"),
        ("resourceclaims", claim(config=[{"requests": ["cpu"], "opaque": CPU}]), "Invalid",
         "devices.config[0].requests[0]"),
        ("pods", pod(containers=[]), "Required", "containers"),
        ("pods", pod(containers=[MAIN, MAIN]), "Duplicate", "containers[1].name"),
        ("pods", pod(containers=[MAIN | {"name": "A b"}]), "Invalid", "containers[0].name"),
        ("pods", pod(containers=[{"name": "a"}]), "Required", "containers[0].image"),
        ("pods", pod(restartPolicy="Sometimes"), "NotSupported", "restartPolicy"),
        ("pods", pod(resourceClaims=[BY_TEMPLATE | {"resourceClaimName": "c"}]), "Invalid",
         "resourceClaims[0]"),
        ("pods", pod(containers=[USER]), "NotFound", "containers[0].resources.claims[0]"),
        ("pods", pod(initContainers=[USER | {"name": "init"}]), "NotFound",
         "initContainers[0].resources.claims[0]"),
        ("deployments", workload("deployments", template=template(containers=[MAIN, MAIN])),
         "Duplicate", "template.spec.containers[1].name"),
    ],
)  # fmt: skip
async def test_of_an_object(
    api: Api, namespace: str, plural: str, wrong: dict[str, Any], reason: str, field: str
):
    answer = await api.post(path(namespace, plural), wrong)
    refused(answer, f"FieldValue{reason}", f"spec.{field}")
    assert f'"{wrong["metadata"]["name"]}" is invalid: ' in answer.body["message"]
