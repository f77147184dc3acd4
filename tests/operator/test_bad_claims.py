"""What is wrong with a claim is said by the claim, and once by an Event of each of its Pods."""

from __future__ import annotations

from typing import Any

from partita.constants import ALLOCATION_GATE
from support.claims import claim_request
from support.job import container
from support.system import System
from support.workloads import CLAIMS

Body = dict[str, Any]


def pod_of(name: str, claim: str) -> Body:
    """A Pod behind our gate that names a claim."""
    main = container(resources={"claims": [{"name": "gpu"}]})
    spec = {
        "containers": [main],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": claim}],
        "schedulingGates": [{"name": ALLOCATION_GATE}],
    }
    return {"metadata": {"name": name}, "spec": spec}


async def test_a_pod_that_comes_after_its_bad_claim_is_told_as_well(system: System) -> None:
    def told(name: str) -> list[str]:
        return [said for why, said in system.history.events(name) if why == "InvalidSpec"]

    def status() -> str:
        claim = system.history.get("resourceclaims", "bad", system.namespace) or {}
        return str(claim.get("metadata", {}).get("annotations", {}).get("partita.dev/status"))

    async with system.running(1):
        partition = await system.partition()
        await system.ready(partition)
        every = [{"cel": {"expression": "true"}}]
        request = claim_request(f"{partition}.gpu.partita.dev", memory="8Gi", selectors=every)
        claim = {"metadata": {"name": "bad"}, "spec": {"devices": {"requests": [request]}}}
        path = f"{CLAIMS}/namespaces/{system.namespace}/resourceclaims"
        (await system.api.post(path, claim)).ok()
        await system.history.until(lambda: status().startswith("InvalidSpec: "), what=status)
        assert "remove selectors" in status()
        pods = f"/api/v1/namespaces/{system.namespace}/pods"
        for name in ("first", "second"):
            (await system.api.post(pods, pod_of(name, "bad"))).ok()
            await system.history.until(lambda name=name: told(name))
        for name in ("first", "second"):
            (await system.api.delete(f"{pods}/{name}", {"gracePeriodSeconds": 0})).ok()
            (said,) = told(name)
            assert "remove selectors" in said
