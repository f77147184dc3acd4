"""Kubernetes' own quota of claims for each device class, as docs/how-to/run-workloads.md has it.

The controller that adds up what quotas use does not run here; the test takes its part.
"""

from __future__ import annotations

from manifests.pods import CORE, OURS, claim
from support.api import Api
from support.polling import until

RESOURCES = "/apis/resource.k8s.io/v1/namespaces"
COUNTED = f"{OURS}.deviceclass.resource.k8s.io/devices"


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
        first = (await api.post(claims, claim("probe"))).status
        second = await api.post(claims, claim("probe-2"))
        for name in ("probe", "probe-2"):
            await api.delete(f"{claims}/{name}")
        (await api.patch(f"{quotas}/slices/status", status)).ok()
        return first == 201 and second.status == 403

    await until(is_counted)
    for name, device_class in (("one", OURS), ("other", "gpu.nvidia.com")):
        (await api.post(claims, claim(name, device_class))).ok()
    templates = f"{RESOURCES}/{namespace}/resourceclaimtemplates"
    template = {"metadata": {"name": "gpu-6gi"}, "spec": {"spec": claim("any")["spec"]}}
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
