"""The controllers of claims and workloads, without a scheduler or kubelets: the test plays these."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.objects import (
    MAIN,
    USER,
    claim,
    claim_template,
    claims,
    job,
    path,
    pod,
    pods,
    template,
    workload,
)
from support.api import Api

PROTECTION = "resource.kubernetes.io/delete-protection"
GATE = {"name": "partita.dev/allocation"}
BY_TEMPLATE = {
    "containers": [USER],
    "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu-6gi"}],
}


async def add_template(api: Api, namespace: str) -> None:
    body = claim_template("gpu-6gi", labels={"team": "vision"})
    (await api.post(path(namespace, "resourceclaimtemplates"), body)).ok()


async def claim_of(api: Api, namespace: str) -> dict[str, Any]:
    """Wait until a Pod's status names its claim, and return the claim."""

    def names(body: dict[str, Any]) -> list[str]:
        statuses = body["status"].get("resourceClaimStatuses") or ()
        return [status["resourceClaimName"] for status in statuses]

    body = await api.until(pods(namespace, "p"), lambda b: bool(names(b)))
    return (await api.get(claims(namespace, names(body)[0]))).ok().body


async def claiming(api: Api, namespace: str, **spec: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Create a Pod whose claim comes of a template; return both."""
    await add_template(api, namespace)
    created = (await api.post(pods(namespace), pod(**BY_TEMPLATE, **spec))).ok().body
    return created, await claim_of(api, namespace)


async def allocate(api: Api, claim: dict[str, Any], *users: dict[str, Any]) -> None:
    """Allocate a claim as an external allocator does, and reserve it for Pods."""
    path = claims(claim["metadata"]["namespace"], claim["metadata"]["name"])
    (await api.patch(path, {"metadata": {"finalizers": [PROTECTION]}})).ok()
    result = {"request": "gpu", "driver": "gpu.partita.dev", "pool": "shared-0", "device": "gpu"}
    reserved = [
        {"resource": "pods", "name": u["metadata"]["name"], "uid": u["metadata"]["uid"]}
        for u in users
    ]
    allocation = {"allocationTimestamp": "2026-11-23T09:00:00Z", "devices": {"results": [result]}}
    status = {"allocation": allocation, "reservedFor": reserved}
    (await api.patch(f"{path}/status", {"status": status})).ok()


async def run(api: Api, namespace: str, name: str, phase: str = "Running") -> None:
    """Play kubelet: write the phase of a Pod."""
    ready = {"type": "Ready", "status": str(phase == "Running")}
    state: dict[str, Any] = {"running": {}}
    if phase != "Running":
        state = {"terminated": {"exitCode": int(phase == "Failed")}}
    container = {"name": "main", "image": "i", "imageID": "", "restartCount": 0}
    statuses = [container | {"ready": phase == "Running", "state": state}]
    path = pods(namespace, name)
    before = (await api.get(path)).ok().body["status"].get("conditions") or []
    kept = [c for c in before if c["type"] != "Ready"]
    status = {"phase": phase, "conditions": [*kept, ready], "containerStatuses": statuses}
    (await api.patch(f"{path}/status", {"status": status})).ok()


async def members(api: Api, namespace: str, count: int) -> list[dict[str, Any]]:
    """Wait until so many Pods exist that are not being deleted, and return them by name."""

    def alive(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [i for i in items if "deletionTimestamp" not in i["metadata"]]

    found = await api.until(pods(namespace), lambda b: len(alive(b["items"])) == count)
    return alive(found["items"])


# -- claims -----------------------------------------------------------------------------------


@pytest.mark.parametrize("gates", [[], [GATE]])
async def test_a_pod_gets_a_claim_of_its_template(api: Api, namespace: str, gates: list[Any]):
    created, claim = await claiming(api, namespace, schedulingGates=gates)
    meta = claim["metadata"]
    assert meta["name"].startswith("p-gpu-")
    assert meta["labels"] == {"team": "vision"}
    assert meta["annotations"] == {"resource.kubernetes.io/pod-claim-name": "gpu"}
    (owner,) = meta["ownerReferences"]
    assert owner["uid"] == created["metadata"]["uid"]
    assert (owner["kind"], owner["controller"]) == ("Pod", True)
    assert "blockOwnerDeletion" not in owner
    exactly = claim["spec"]["devices"]["requests"][0]["exactly"]
    assert exactly["deviceClassName"] == "shared.gpu.partita.dev"


async def test_a_template_may_come_after_its_pod(api: Api, namespace: str):
    (await api.post(pods(namespace), pod(**BY_TEMPLATE))).ok()
    events = await api.until(
        f"/api/v1/namespaces/{namespace}/events",
        lambda b: any(e["reason"] == "FailedResourceClaimCreation" for e in b["items"]),
    )
    assert 'template "gpu-6gi"' in events["items"][0]["message"]
    await add_template(api, namespace)
    assert await claim_of(api, namespace)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_the_claim_of_an_ended_pod_is_deleted(api: Api, namespace: str, phase: str):
    created, claim = await claiming(api, namespace, nodeName="n1")
    await allocate(api, claim, created)
    await run(api, namespace, "p", phase)
    await api.gone(claims(namespace, claim["metadata"]["name"]))


async def test_the_claim_of_a_deleted_pod_is_deleted(api: Api, namespace: str):
    created, claim = await claiming(api, namespace, nodeName="n1")
    await allocate(api, claim, created)
    (await api.delete(pods(namespace, "p"), {"gracePeriodSeconds": 30})).ok()
    body = (await api.get(claims(namespace, claim["metadata"]["name"]))).ok().body
    assert body["status"]["allocation"], "the Pod still runs"
    (await api.delete(pods(namespace, "p"), {"gracePeriodSeconds": 0})).ok()
    await api.gone(claims(namespace, claim["metadata"]["name"]))


@pytest.mark.smoke
async def test_a_claim_by_name_is_deallocated_and_kept(api: Api, namespace: str):
    own = (await api.post(claims(namespace), claim())).ok().body
    by_name = {"containers": [USER], "resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]}
    users = [
        (await api.post(pods(namespace), pod(name, **by_name, nodeName="n1"))).ok().body
        for name in ("p", "q")
    ]
    await allocate(api, own, *users)
    await run(api, namespace, "p", "Succeeded")
    left = await api.until(claims(namespace, "c"), lambda b: len(b["status"]["reservedFor"]) == 1)
    assert left["status"]["allocation"]
    await run(api, namespace, "q", "Failed")
    after = await api.until(claims(namespace, "c"), lambda b: b["status"] == {})
    unprotected = await api.until(
        claims(namespace, "c"), lambda b: "finalizers" not in b["metadata"]
    )
    assert unprotected["metadata"]["uid"] == after["metadata"]["uid"]


async def test_an_unused_allocation_is_kept(api: Api, namespace: str):
    _, claim = await claiming(api, namespace, schedulingGates=[GATE])
    await allocate(api, claim)
    (await api.patch(pods(namespace, "p"), {"spec": {"schedulingGates": []}})).ok()
    (await api.patch(pods(namespace, "p"), {"metadata": {"labels": {"a": "b"}}})).ok()
    body = (await api.get(claims(namespace, claim["metadata"]["name"]))).ok().body
    assert body["status"]["allocation"]


async def test_a_pod_that_was_bound_without_its_scheduler_is_reserved_for(api: Api, namespace: str):
    created, claim = await claiming(api, namespace, nodeName="n1")
    await allocate(api, claim)
    (await api.patch(pods(namespace, "p"), {"metadata": {"labels": {"a": "b"}}})).ok()
    reserved = await api.until(
        claims(namespace, claim["metadata"]["name"]), lambda b: bool(b["status"].get("reservedFor"))
    )
    (user,) = reserved["status"]["reservedFor"]
    assert user == {"resource": "pods", "name": "p", "uid": created["metadata"]["uid"]}


# -- Deployments ------------------------------------------------------------------------------


def counts(body: dict[str, Any], *names: str) -> tuple[int, ...]:
    return tuple(body["status"].get(name, 0) for name in names)


async def test_a_deployment_has_its_replicas_and_follows_its_scale(api: Api, namespace: str):
    (await api.post(path(namespace, "deployments"), workload("deployments", replicas=2))).ok()
    own = path(namespace, "deployments", "w")
    for member in await members(api, namespace, 2):
        assert member["metadata"]["name"].startswith("w-")
        assert "pod-template-hash" in member["metadata"]["labels"]
        assert member["metadata"]["ownerReferences"][0]["kind"] == "ReplicaSet"
        await run(api, namespace, member["metadata"]["name"])
    names = ("replicas", "readyReplicas", "updatedReplicas", "availableReplicas")
    await api.until(own, lambda b: counts(b, *names) == (2, 2, 2, 2))
    (await api.patch(f"{own}/scale", {"spec": {"replicas": 3}})).ok()
    await members(api, namespace, 3)
    (await api.patch(f"{own}/scale", {"spec": {"replicas": 1}})).ok()
    (left,) = await members(api, namespace, 1)
    assert left["status"]["phase"] == "Running", "the Pod that is not ready goes first"
    await api.until(own, lambda b: counts(b, *names) == (1, 1, 1, 1))


async def test_a_deleted_or_failed_replica_is_replaced(api: Api, namespace: str):
    (await api.post(path(namespace, "replicasets"), workload("replicasets"))).ok()
    (first,) = await members(api, namespace, 1)
    (await api.delete(pods(namespace, first["metadata"]["name"]))).ok()

    def replaced(body: dict[str, Any]) -> bool:
        uids = [i["metadata"]["uid"] for i in body["items"]]
        return len(uids) == 1 and uids != [first["metadata"]["uid"]]

    second = (await api.until(pods(namespace), replaced))["items"][0]
    await run(api, namespace, second["metadata"]["name"], "Failed")
    both = await members(api, namespace, 2)
    assert sorted(p["status"]["phase"] for p in both) == ["Failed", "Pending"]


async def one_runs(api: Api, namespace: str, plural: str, body: dict[str, Any]) -> tuple[str, str]:
    """Make a workload whose one Pod runs; return its path and the name of the Pod."""
    (await api.post(path(namespace, plural), body)).ok()
    (pod,) = await members(api, namespace, 1)
    await run(api, namespace, pod["metadata"]["name"])
    own = path(namespace, plural, "w")
    await api.until(own, lambda b: counts(b, "readyReplicas") == (1,))
    return own, str(pod["metadata"]["name"])


async def test_a_new_template_replaces_pods_within_its_bounds(api: Api, namespace: str):
    strategy = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    body = workload("deployments", replicas=1, strategy=strategy)
    own, _ = await one_runs(api, namespace, "deployments", body)
    image = MAIN | {"image": "example.org/image:2"}
    (await api.patch(own, {"spec": {"template": template(containers=[image])}})).ok()
    both = await members(api, namespace, 2)
    (new,) = [p for p in both if p["spec"]["containers"][0]["image"].endswith(":2")]
    await run(api, namespace, new["metadata"]["name"])
    (left,) = await members(api, namespace, 1)
    assert left["metadata"]["name"] == new["metadata"]["name"]
    final = ("replicas", "updatedReplicas", "availableReplicas")
    await api.until(own, lambda b: counts(b, *final) == (1, 1, 1))


async def test_recreate_ends_the_old_pods_first(api: Api, namespace: str):
    body = workload("deployments", replicas=1, strategy={"type": "Recreate"})
    body["spec"]["template"]["spec"]["nodeName"] = "n1"
    own, name = await one_runs(api, namespace, "deployments", body)
    image = MAIN | {"image": "example.org/image:2"}
    change = {"spec": {"template": {"spec": {"containers": [image]}}}}
    (await api.patch(own, change)).ok()
    await api.until(pods(namespace, name), lambda b: "deletionTimestamp" in b["metadata"])
    assert (await api.get(pods(namespace))).names == [name]
    (await api.delete(pods(namespace, name), {"gracePeriodSeconds": 0})).ok()
    (new,) = await members(api, namespace, 1)
    assert new["spec"]["containers"][0]["image"].endswith(":2")


# -- StatefulSets -----------------------------------------------------------------------------


async def test_a_stateful_set_starts_its_pods_in_order(api: Api, namespace: str):
    body = workload("statefulsets", replicas=2, serviceName="w")
    (await api.post(path(namespace, "statefulsets"), body)).ok()
    (first,) = await members(api, namespace, 1)
    assert first["metadata"]["name"] == "w-0"
    assert (first["spec"]["hostname"], first["spec"]["subdomain"]) == ("w-0", "w")
    assert first["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] == "w-0"
    await run(api, namespace, "w-0")
    both = await members(api, namespace, 2)
    assert [p["metadata"]["name"] for p in both] == ["w-0", "w-1"]
    await run(api, namespace, "w-1")
    own = path(namespace, "statefulsets", "w")
    await api.until(own, lambda b: counts(b, "replicas", "readyReplicas") == (2, 2))
    (await api.patch(f"{own}/scale", {"spec": {"replicas": 1}})).ok()
    (left,) = await members(api, namespace, 1)
    assert left["metadata"]["name"] == "w-0"


async def test_a_new_template_replaces_the_pods_of_a_stateful_set(api: Api, namespace: str):
    body = workload("statefulsets", serviceName="w")
    own, _ = await one_runs(api, namespace, "statefulsets", body)
    image = MAIN | {"image": "example.org/image:2"}
    (await api.patch(own, {"spec": {"template": template(containers=[image])}})).ok()
    await api.until(
        pods(namespace, "w-0"), lambda b: b["spec"]["containers"][0]["image"].endswith(":2")
    )


# -- Jobs -------------------------------------------------------------------------------------


def holds(body: dict[str, Any], kind: str) -> bool:
    conditions = body["status"].get("conditions") or ()
    return any((c["type"], c["status"]) == (kind, "True") for c in conditions)


async def test_a_job_completes_with_its_pods(api: Api, namespace: str):
    (await api.post(path(namespace, "jobs"), job(completions=2, parallelism=1))).ok()
    for done in (1, 2):
        (running,) = [
            p for p in await members(api, namespace, done) if p["status"]["phase"] == "Pending"
        ]
        await api.until(path(namespace, "jobs", "w"), lambda b: counts(b, "active") == (1,))
        await run(api, namespace, running["metadata"]["name"], "Succeeded")
    ended = await api.until(path(namespace, "jobs", "w"), lambda b: holds(b, "Complete"))
    assert counts(ended, "succeeded", "failed", "active") == (2, 0, 0)
    assert ended["status"]["completionTime"]
    assert len(await members(api, namespace, 2)) == 2


async def test_a_job_fails_at_its_limit(api: Api, namespace: str):
    (await api.post(path(namespace, "jobs"), job(backoffLimit=0))).ok()
    (only,) = await members(api, namespace, 1)
    await run(api, namespace, only["metadata"]["name"], "Failed")
    ended = await api.until(path(namespace, "jobs", "w"), lambda b: holds(b, "Failed"))
    (failed,) = [c for c in ended["status"]["conditions"] if c["type"] == "Failed"]
    assert failed["reason"] == "BackoffLimitExceeded"
    assert counts(ended, "failed", "active") == (1, 0)


async def test_preemption_is_no_failure_where_the_policy_says_so(api: Api, namespace: str):
    disruption = {"type": "DisruptionTarget", "status": "True"}
    policy = {"rules": [{"action": "Ignore", "onPodConditions": [disruption]}]}
    (await api.post(path(namespace, "jobs"), job(backoffLimit=0, podFailurePolicy=policy))).ok()
    (first,) = await members(api, namespace, 1)
    name = first["metadata"]["name"]
    await run(api, namespace, name)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    (await api.post(f"{pods(namespace, name)}/eviction", eviction)).ok()
    await run(api, namespace, name, "Failed")  # as kubelet does before it removes a Pod
    (await api.delete(pods(namespace, name), {"gracePeriodSeconds": 0})).ok()
    await api.gone(pods(namespace, name))
    (second,) = await members(api, namespace, 1)
    await run(api, namespace, second["metadata"]["name"], "Succeeded")
    ended = await api.until(path(namespace, "jobs", "w"), lambda b: holds(b, "Complete"))
    assert counts(ended, "succeeded", "failed") == (1, 0)


async def test_a_suspended_job_has_no_pods(api: Api, namespace: str):
    (await api.post(path(namespace, "jobs"), job(suspend=True))).ok()
    await api.until(path(namespace, "jobs", "w"), lambda b: holds(b, "Suspended"))
    assert (await api.get(pods(namespace))).names == []
    (await api.patch(path(namespace, "jobs", "w"), {"spec": {"suspend": False}})).ok()
    (only,) = await members(api, namespace, 1)
    (await api.patch(path(namespace, "jobs", "w"), {"spec": {"suspend": True}})).ok()
    own = pods(namespace, only["metadata"]["name"])
    await api.until(own, lambda b: "deletionTimestamp" in b["metadata"])
