"""What is not the tenant's: objects of the cluster, of the operator, and of other namespaces."""

from __future__ import annotations

import asyncio

from adversary.actions import action
from adversary.attacked_cluster import SERVERS
from adversary.attacker import Attacker, pod_body
from partita.pods.own_claims import own_claims
from support.history import GROUP_PATH
from support.job import container
from support.workloads import CLAIMS

RBAC = "RBAC: a tenant has no rights outside its namespace"
LEASES = "/apis/coordination.k8s.io/v1/namespaces"
AGENT = "`partita-agent-reports` and the rights of the agent's role"


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
async def gpu_servers_and_partitions_changed(attacker: Attacker) -> None:
    """Making, scaling, changing and deleting partitions and GPUServers, and writing the ledger."""
    cluster = attacker.cluster
    gpu = f"{GROUP_PATH}/gpuservers/{cluster.gpus[0]['metadata']['name']}"
    partition = f"{GROUP_PATH}/gpupartitions/{cluster.partition}"
    server = {"metadata": {"name": "own"}, "spec": {"partition": cluster.partition}}
    api = attacker.api
    ledger = {"status": {"allocations": None}}
    for answer in (
        await api.post(f"{GROUP_PATH}/gpuservers", server),
        await api.post(f"{GROUP_PATH}/gpupartitions", {"metadata": {"name": "own"}}),
        await api.patch(f"{gpu}/status", ledger),
        await api.patch(gpu, {"metadata": {"annotations": {"sim.partita.dev/fault": "mps"}}}),
        await api.delete(gpu),
        await api.patch(partition, {"spec": {"gpus": 0}}),
        await api.patch(f"{partition}/scale", {"spec": {"replicas": 0}}),
        await api.delete(partition),
    ):
        attacker.refused(answer)


@action(RBAC, real=True)
async def nodes_and_namespaces_changed(attacker: Attacker) -> None:
    """Cordoning the victims' node, and labelling its own namespace as one that may more."""
    cluster = attacker.cluster
    node = f"/api/v1/nodes/{cluster.gpus[0]['status']['node']}"
    own = f"/api/v1/namespaces/{attacker.namespace}"
    labels = {"partita.dev/gpu-access": "unrestricted", "team": cluster.victim}
    for answer in (
        await attacker.api.patch(node, {"spec": {"unschedulable": True}}),
        await attacker.api.delete(node),
        await attacker.api.patch(own, {"metadata": {"labels": labels}}),
        await attacker.api.delete(f"/api/v1/namespaces/{cluster.victim}"),
    ):
        attacker.refused(answer)


@action(RBAC, real=True)
async def admission_and_rights_changed(attacker: Attacker) -> None:
    """Deleting the admission policies and CRDs, and giving itself the operator's rights."""
    admission = "/apis/admissionregistration.k8s.io/v1"
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    binding = {
        "metadata": {"name": "more"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "partita-operator",
        },
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "mallory"}],
    }
    own = f"{rbac}/namespaces/{attacker.namespace}/rolebindings"
    policy = f"{admission}/validatingadmissionpolicies/partita-gpu-access"
    for answer in (
        await attacker.api.delete(policy),
        await attacker.api.delete(
            f"{admission}/validatingadmissionpolicybindings/partita-gpu-access"
        ),
        await attacker.api.delete(f"{crds}/sharedgpujobs.partita.dev"),
        await attacker.api.post(own, binding),
        await attacker.api.post(f"{rbac}/clusterrolebindings", binding),
    ):
        attacker.refused(answer)


@action(RBAC, real=True)
async def tokens_of_others(attacker: Attacker) -> None:
    """Asking for tokens of the operator and the agent, acting as them, and reading Secrets."""
    for name, namespace in (("partita-operator", "partita-system"), ("partita-agent", SERVERS)):
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


@action(AGENT, real=True)
async def agent_token_that_was_stolen(attacker: Attacker) -> None:
    """What the token of one server Pod can do: other GPUs' status, allocations, Pods, Secrets."""
    cluster = attacker.cluster
    first, second = (gpu["metadata"]["name"] for gpu in cluster.gpus[:2])
    async with cluster.agent_of(first) as agent:
        own, other = (f"{GROUP_PATH}/gpuservers/{name}" for name in (first, second))
        (await agent.patch(f"{own}/status", {"status": {"driverVersion": "580.95.05"}})).ok()
        pod = f"/api/v1/namespaces/{cluster.victim}/pods/{cluster.running[0].name}-1"
        for answer in (
            await agent.patch(f"{other}/status", {"status": {"memory": "1Gi"}}),
            await agent.patch(f"{own}/status", {"status": {"allocations": None}}),
            await agent.patch(f"{own}/status", {"status": {"allocations": {"x": None, "u": {}}}}),
            await agent.patch(own, {"spec": {"partition": "x"}}),
            await agent.delete(own),
            await agent.delete(pod),
            await agent.patch(pod, {"metadata": {"labels": {"a": "b"}}}),
            await agent.patch(cluster.running[0].path, {"spec": {"suspend": True}}),
            await agent.patch(f"{cluster.running[0].path}/status", {"status": {"phase": "Failed"}}),
            await agent.get(f"/api/v1/namespaces/{cluster.victim}/secrets"),
            await agent.get("/api/v1/pods"),
        ):
            attacker.refused(answer, 403, 422)


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
