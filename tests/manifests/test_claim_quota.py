"""Kubernetes' own quota of claims for each device class, as docs/how-to/run-workloads.md has it.

The controller that adds up what quotas use does not run here; the test takes its part.
"""

from __future__ import annotations

from typing import Any

from manifests.pods import CORE
from support.api import Api
from support.polling import until

RESOURCES = "/apis/resource.k8s.io/v1/namespaces"
OURS = "shared.gpu.partita.dev"
COUNTED = f"{OURS}.deviceclass.resource.k8s.io/devices"


def devices(device_class: str) -> dict[str, Any]:
    """What a claim of one device asks for."""
    exactly = {"deviceClassName": device_class, "capacity": {"requests": {"memory": "6Gi"}}}
    return {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}


async def test_a_resource_quota_limits_the_claims_of_a_device_class(
    api: Api, namespace: str
) -> None:
    hard = {COUNTED: "1"}
    quotas = f"{CORE}/{namespace}/resourcequotas"
    (await api.post(quotas, {"metadata": {"name": "slices"}, "spec": {"hard": hard}})).ok()
    status = {"status": {"hard": hard, "used": {COUNTED: "0"}}}
    (await api.patch(f"{quotas}/slices/status", status)).ok()
    claims = f"{RESOURCES}/{namespace}/resourceclaims"

    async def is_counted() -> bool:  # the API server reads new quotas after a moment
        probe = {"metadata": {"name": "probe"}, "spec": devices(OURS)}
        first = (await api.post(claims, probe)).status
        second = await api.post(claims, {**probe, "metadata": {"name": "probe-2"}})
        for name in ("probe", "probe-2"):
            await api.delete(f"{claims}/{name}")
        (await api.patch(f"{quotas}/slices/status", status)).ok()
        return first == 201 and second.status == 403

    await until(is_counted)
    for name, device_class in (("one", OURS), ("other", "gpu.nvidia.com")):
        body = {"metadata": {"name": name}, "spec": devices(device_class)}
        (await api.post(claims, body)).ok()
    templates = f"{RESOURCES}/{namespace}/resourceclaimtemplates"
    template = {"metadata": {"name": "gpu-6gi"}, "spec": {"spec": devices(OURS)}}
    (await api.post(templates, template)).ok()
    pod = {
        "metadata": {"name": "above"},
        "spec": {
            "containers": [{"name": "main", "image": "i"}],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu-6gi"}],
        },
    }
    (await api.post(f"{CORE}/{namespace}/pods", pod)).ok()

    async def events() -> list[str]:
        found = (await api.get(f"{CORE}/{namespace}/events")).ok().body["items"]
        return [e["message"] for e in found if e["reason"] == "FailedResourceClaimCreation"]

    async def is_told() -> bool:
        return any("exceeded quota: slices" in message for message in await events())

    await until(is_told)
