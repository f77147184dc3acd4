"""Pods, nodes, leases and events: what the operator relies on of the built-in kinds."""

from __future__ import annotations

import asyncio
from typing import Any

from conformance.objects import binding, path, pod, pods, refused
from support.api import Api

RESOURCE = "gpu.partita.dev/1a2b3c4d"


def with_resources(**resources: Any) -> dict[str, Any]:
    return pod(containers=[{"name": "a", "image": "example.org/a:1", "resources": resources}])


async def test_a_new_pod_is_pending_with_defaults(api: Api, namespace: str):
    body = (await api.post(pods(namespace), pod())).ok().body
    assert body["status"]["phase"] == "Pending"
    assert body["spec"]["restartPolicy"] == "Always"
    assert body["spec"]["terminationGracePeriodSeconds"] == 30
    assert body["spec"]["schedulerName"] == "default-scheduler"
    container = body["spec"]["containers"][0]
    assert container["terminationMessagePolicy"] == "File"
    assert container["imagePullPolicy"] == "IfNotPresent"


async def test_limits_of_extended_resources_become_requests(api: Api, namespace: str):
    body = (await api.post(pods(namespace), with_resources(limits={RESOURCE: "1"}))).ok().body
    assert body["spec"]["containers"][0]["resources"] == {
        "limits": {RESOURCE: "1"},
        "requests": {RESOURCE: "1"},
    }


async def test_refuses_what_is_no_quantity(api: Api, namespace: str):
    answer = await api.post(pods(namespace), with_resources(limits={"memory": "lots"}))
    assert (answer.status, answer.body["reason"]) == (400, "BadRequest")
    assert "quantities must match" in answer.body["message"]


async def test_binding_sets_the_node_once(api: Api, namespace: str):
    created = (await api.post(pods(namespace), pod())).ok().body
    bound = await api.post(f"{pods(namespace, 'p')}/binding", binding())
    assert (bound.status, bound.body["status"]) == (201, "Success")
    body = (await api.get(pods(namespace, "p"))).body
    assert body["spec"]["nodeName"] == "n1"
    assert body["metadata"]["uid"] == created["metadata"]["uid"]
    scheduled = [c for c in body["status"]["conditions"] if c["type"] == "PodScheduled"]
    assert scheduled[0]["status"] == "True"
    again = await api.post(f"{pods(namespace, 'p')}/binding", binding("n2"))
    assert (again.status, again.body["reason"]) == (409, "Conflict")
    assert 'already assigned to node "n1"' in again.body["message"]


async def test_a_finished_pod_is_deleted_at_once(api: Api, namespace: str):
    (await api.post(pods(namespace), pod(nodeName="n1"))).ok()
    (await api.patch(f"{pods(namespace, 'p')}/status", {"status": {"phase": "Succeeded"}})).ok()
    (await api.delete(pods(namespace, "p"))).ok()
    assert (await api.get(pods(namespace, "p"))).status == 404


async def test_a_bound_pod_is_deleted_by_its_kubelet(api: Api, namespace: str):
    own = pods(namespace, "p")
    (await api.post(pods(namespace), pod(terminationGracePeriodSeconds=7))).ok()
    (await api.post(f"{pods(namespace, 'p')}/binding", binding())).ok()
    version = (await api.get(pods(namespace))).version
    async with api.watch(pods(namespace), resourceVersion=version) as watch:
        deleted = (await api.delete(own)).ok().body["metadata"]
        assert deleted["deletionGracePeriodSeconds"] == 7
        kind, obj = await watch.next()
        assert (kind, obj["metadata"]["deletionTimestamp"]) == (
            "MODIFIED",
            deleted["deletionTimestamp"],
        )
        assert (await api.get(own)).status == 200
        sooner = (await api.delete(own, {"gracePeriodSeconds": 2})).ok().body["metadata"]
        assert sooner["deletionGracePeriodSeconds"] == 2
        assert sooner["deletionTimestamp"] < deleted["deletionTimestamp"]
        (await api.delete(own, {"gracePeriodSeconds": 0})).ok()
        while (await watch.next())[0] != "DELETED":
            pass
    assert (await api.get(own)).status == 404


async def test_a_finalizer_holds_a_pod_after_its_kubelet(api: Api, namespace: str):
    own = pods(namespace, "p")
    obj = pod(nodeName="n1")
    obj["metadata"]["finalizers"] = ["partita.dev/hold"]
    (await api.post(pods(namespace), obj)).ok()
    (await api.delete(own, {"gracePeriodSeconds": 0})).ok()
    assert (await api.get(own)).ok().body["metadata"]["deletionGracePeriodSeconds"] == 0
    (await api.patch(own, {"metadata": {"finalizers": None}})).ok()
    assert (await api.get(own)).status == 404


async def test_the_spec_of_a_pod_is_immutable(api: Api, namespace: str):
    own = pods(namespace, "p")
    (await api.post(pods(namespace), pod())).ok()
    answer = await api.patch(own, {"spec": {"nodeName": "elsewhere"}})
    refused(answer, "FieldValueForbidden", "spec")
    image = [{"name": "main", "image": "example.org/image:2"}]
    patched = await api.patch(
        own, {"spec": {"containers": image}}, "application/strategic-merge-patch+json"
    )
    assert patched.ok().body["spec"]["containers"][0]["image"] == "example.org/image:2"


async def test_the_status_of_a_pod_has_its_own_path(api: Api, namespace: str):
    own = pods(namespace, "p")
    (await api.post(pods(namespace), pod())).ok()
    ended = {
        "name": "main",
        "image": "example.org/image:1",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": {
            "terminated": {"exitCode": 1, "reason": "Error", "message": "CUDA out of memory"}
        },
    }
    status = {"phase": "Failed", "containerStatuses": [ended]}
    assert (await api.patch(own, {"status": status})).ok().body["status"]["phase"] == "Pending"
    body = (await api.patch(f"{own}/status", {"status": status})).ok().body
    assert body["status"]["phase"] == "Failed"
    terminated = body["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (terminated["exitCode"], terminated["message"]) == (1, "CUDA out of memory")


async def test_a_node_has_capacity_in_its_status(api: Api):
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "conformance"}}
    (await api.post("/api/v1/nodes", node)).ok()
    path = "/api/v1/nodes/conformance"
    patch = {"status": {"capacity": {RESOURCE: "4"}, "allocatable": {RESOURCE: "4"}}}
    body = (await api.patch(f"{path}/status", patch)).ok().body
    assert body["status"]["allocatable"] == {RESOURCE: "4"}
    (await api.patch(path, {"spec": {"unschedulable": True}})).ok()
    selected = await api.get("/api/v1/nodes", fieldSelector="spec.unschedulable=true")
    assert "conformance" in selected.names
    (await api.delete(path)).ok()
    assert (await api.get(path)).status == 404


def lease(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "l"},
        "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15} | spec,
    }


async def test_of_two_who_take_a_lease_one_wins(api: Api, namespace: str):
    held = (await api.post(path(namespace, "leases"), lease())).ok().body
    assert (await api.post(path(namespace, "leases"), lease())).body["reason"] == "AlreadyExists"
    takers = [{**held, "spec": {**held["spec"], "holderIdentity": name}} for name in "bc"]
    answers = await asyncio.gather(*(api.put(path(namespace, "leases", "l"), t) for t in takers))
    assert sorted(answer.status for answer in answers) == [200, 409]
    winner = next(answer for answer in answers if answer.status == 200)
    now = (await api.get(path(namespace, "leases", "l"))).body
    assert now["spec"]["holderIdentity"] == winner.body["spec"]["holderIdentity"]


async def test_lease_times_keep_their_microseconds(api: Api, namespace: str):
    renewed = "2026-01-02T03:04:05.678901Z"
    body = (await api.post(path(namespace, "leases"), lease(renewTime=renewed))).ok().body
    assert body["spec"]["renewTime"] == renewed


def event(namespace: str, **fields: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": "e-"},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": "p",
            "namespace": namespace,
            "uid": "u",
        },
        "reason": "Started",
        "message": "it runs",
        "type": "Normal",
    } | fields


async def test_events_are_found_by_their_object(api: Api, namespace: str):
    path = f"/api/v1/namespaces/{namespace}/events"
    created = (await api.post(path, event(namespace))).ok().body
    assert created["message"] == "it runs"
    other = event(namespace)["involvedObject"] | {"name": "q", "uid": "v"}
    (await api.post(path, event(namespace, involvedObject=other, type="Warning"))).ok()
    for selector in ("involvedObject.name=p", "involvedObject.uid=u", "type=Normal"):
        found = (await api.get(path, fieldSelector=selector)).ok()
        assert found.names == [created["metadata"]["name"]], selector
    both = "involvedObject.kind=Pod,reason=Started"
    assert len((await api.get(path, fieldSelector=both)).names) == 2


async def test_an_event_lives_in_the_namespace_of_its_object(api: Api, namespace: str):
    answer = await api.post(f"/api/v1/namespaces/{namespace}/events", event("default"))
    refused(answer, "FieldValueInvalid", "involvedObject.namespace")


async def test_events_of_cluster_scoped_objects_live_in_default(api: Api):
    involved = {"apiVersion": "v1", "kind": "Node", "name": "n1"}
    path = "/api/v1/namespaces/default/events"
    created = (await api.post(path, event("", involvedObject=involved))).ok().body
    assert created["metadata"]["namespace"] == "default"
    (await api.delete(f"{path}/{created['metadata']['name']}")).ok()


def budget(selector: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": selector},
    }


def eviction(**options: Any) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "p"},
        "deleteOptions": options,
    }


async def test_an_evicted_pod_is_marked_and_deleted(api: Api, namespace: str):
    (await api.post(pods(namespace), pod(nodeName="n1"))).ok()
    own = pods(namespace, "p")
    stale = eviction(preconditions={"uid": "another"})
    assert (await api.post(f"{own}/eviction", stale)).status == 409
    assert "deletionTimestamp" not in (await api.get(own)).body["metadata"]
    evicted = await api.post(f"{own}/eviction", eviction(gracePeriodSeconds=7))
    assert (evicted.status, evicted.body["status"]) == (201, "Success")
    body = (await api.get(own)).ok().body
    assert body["metadata"]["deletionGracePeriodSeconds"] == 7
    (disrupted,) = [c for c in body["status"]["conditions"] if c["type"] == "DisruptionTarget"]
    assert (disrupted["status"], disrupted["reason"]) == ("True", "EvictionByEvictionAPI")


async def test_a_disruption_budget_refuses_evictions(api: Api, namespace: str):
    obj = pod(nodeName="n1")
    obj["metadata"]["labels"] = {"app": "a"}
    (await api.post(pods(namespace), obj)).ok()
    own = pods(namespace, "p")
    (await api.patch(f"{own}/status", {"status": {"phase": "Running"}})).ok()
    budgets = path(namespace, "poddisruptionbudgets")
    selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["a"]}]}
    (await api.post(budgets, budget(selector))).ok()
    refused = await api.post(f"{own}/eviction", eviction())
    assert (refused.status, refused.body["reason"]) == (429, "TooManyRequests")
    (cause,) = refused.body["details"]["causes"]
    assert cause["reason"] == "DisruptionBudget"
    assert cause["message"].startswith("The disruption budget b ")
    assert "deletionTimestamp" not in (await api.get(own)).body["metadata"]
    (await api.delete(f"{budgets}/b")).ok()
    assert (await api.post(f"{own}/eviction", eviction())).status == 201
