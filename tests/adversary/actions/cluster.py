"""What is not the tenant's: objects of the cluster, of the operator, and of other namespaces."""

from __future__ import annotations

import asyncio

from adversary.actions import action
from adversary.attacker import Attacker, pod_body
from partita.pods.own_claims import own_claims
from support.crds import SERVER_NAMESPACE
from support.history import GROUP_PATH
from support.job import container
from support.workloads import CLAIMS

RBAC = "RBAC: a tenant has no rights outside its namespace"
LEASES = "/apis/coordination.k8s.io/v1/namespaces"


@action(RBAC, real=True)
async def others_jobs_and_pods_changed(attacker: Attacker) -> None:
    """Reading, changing, deleting and labelling the victims' jobs, Pods and claims by their names."""
    victim = attacker.cluster.running[0]
    pod = attacker.path("pods", f"{victim.name}-1", victim.namespace)
    (name,) = own_claims(victim.made())
    claim = f"{CLAIMS}/namespaces/{victim.namespace}/resourceclaims/{name}"
    for path in (victim.path, pod, claim):
        attacker.refused(await attacker.api.get(path))
        attacker.refused(await attacker.api.patch(path, {"metadata": {"labels": {"a": "b"}}}))
        attacker.refused(await attacker.api.delete(path))
    attacker.refused(await attacker.api.patch(victim.path, {"spec": {"suspend": True}}))
    attacker.refused(await attacker.api.delete(attacker.job_path(namespace=victim.namespace)))


@action(RBAC, real=True)
async def objects_of_the_cluster_changed(attacker: Attacker) -> None:
    """Changing and deleting GPUServers, partitions, nodes, namespaces, device classes, admission policies and CRDs."""
    cluster = attacker.cluster
    gpu = cluster.gpus[0]
    server = f"{GROUP_PATH}/gpuservers/{gpu['metadata']['name']}"
    partition = f"{GROUP_PATH}/gpupartitions/{cluster.partition}"
    admission = "/apis/admissionregistration.k8s.io/v1"
    paths = (
        server,
        f"{server}/status",
        partition,
        f"{partition}/scale",
        f"/api/v1/nodes/{gpu['status']['node']}",
        f"/api/v1/namespaces/{attacker.namespace}",
        f"{CLAIMS}/deviceclasses/{cluster.partition}.gpu.partita.dev",
        f"{admission}/validatingadmissionpolicies/partita-gpu-access",
        f"{admission}/validatingadmissionpolicybindings/partita-gpu-access",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/sharedgpujobs.partita.dev",
    )
    for path in paths:
        attacker.refused(await attacker.api.patch(path, {"metadata": {"labels": {"a": "b"}}}))
        if path.rpartition("/")[2] not in {"status", "scale"}:
            attacker.refused(await attacker.api.delete(path))


@action(RBAC, real=True)
async def rights_of_the_operator_taken(attacker: Attacker) -> None:
    """Giving itself the operator's rights, in its namespace and in all."""
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    group = "rbac.authorization.k8s.io"
    binding = {
        "metadata": {"name": "more"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "partita-operator"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "mallory"}],
    }
    for where in (f"/namespaces/{attacker.namespace}/rolebindings", "/clusterrolebindings"):
        attacker.refused(await attacker.api.post(f"{rbac}{where}", binding))


@action(RBAC, real=True)
async def tokens_of_others(attacker: Attacker) -> None:
    """Asking for tokens of the operator and the agent, acting as them, and reading Secrets."""
    for name, namespace in (
        ("partita-operator", "partita-system"),
        ("partita-agent", SERVER_NAMESPACE),
    ):
        path = f"{attacker.path('serviceaccounts', name, namespace)}/token"
        attacker.refused(await attacker.api.post(path, {"spec": {}}))
        attacker.refused(await attacker.api.get(attacker.path("secrets", namespace=namespace)))


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
