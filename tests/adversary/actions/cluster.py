"""What is not the tenant's: objects of the cluster, of the operator, and of other namespaces."""

from __future__ import annotations

import asyncio

from adversary.actions import action
from adversary.attacker import Attacker, pod_body
from support.job import container

LEASES = "/apis/coordination.k8s.io/v1/namespaces"


@action("the Lease is in the operator's namespace, in which a tenant has no rights")
async def lease_of_the_operator(attacker: Attacker) -> None:
    """Taking and deleting the operator's Lease; and one of its name in its own namespace."""
    lease = {
        "metadata": {"name": "partita-operator"},
        "spec": {"holderIdentity": "mallory", "leaseDurationSeconds": 3600},
    }
    await attacker.api.post(f"{LEASES}/{attacker.namespace}/leases", lease)
    if attacker.cluster.real:
        path = f"{LEASES}/partita-system/leases/partita-operator"
        attacker.refused(await attacker.api.delete(path))
        attacker.refused(await attacker.api.patch(path, {"spec": {"holderIdentity": "mallory"}}))


@action("only the kubelet assigns devices; requests to the API do not use a GPU")
async def namespace_filled_with_pods(attacker: Attacker) -> None:
    """Two hundred ordinary Pods, labelled, changed and deleted as fast as it goes."""

    async def churn(number: int) -> None:
        body = pod_body(f"churn-{number}", spec={"containers": [container()]})
        if await attacker.pod(body) is not None:
            await attacker.patch_pod(f"churn-{number}", {"labels": {"app": "x"}})
            path = attacker.path("pods", f"churn-{number}")
            await attacker.api.delete(path, {"gracePeriodSeconds": 0})

    await asyncio.gather(*(churn(number) for number in range(200)))
