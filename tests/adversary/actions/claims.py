"""ResourceClaims and their Pods, which a tenant may write in its namespace."""

from __future__ import annotations

import asyncio

from adversary.actions import action
from adversary.attacker import Attacker, Body
from support.claims import claim_request
from support.workloads import CLAIMS

ALLOCATES = "RBAC: a tenant does not write the status of claims"
AGENT = "the agent prepares a claim only for the Pod and with the amounts of the ledger"


def _allocation(attacker: Attacker, memory: str) -> Body:
    gpu = attacker.cluster.gpus[0]
    name = gpu["metadata"]["name"]
    parameters = {
        "apiVersion": "partita.dev/v1alpha1",
        "kind": "SliceParameters",
        "gpuServer": name,
        "gpu": gpu["status"]["uuid"],
        "memory": memory,
    }
    result = {"request": "gpu", "driver": "gpu.partita.dev", "pool": name, "device": "gpu"}
    opaque = {"driver": "gpu.partita.dev", "parameters": parameters}
    return {"devices": {"results": [result], "config": [{"source": "FromClaim", "opaque": opaque}]}}


@action(ALLOCATES, real=True)
async def claim_that_allocates_itself(attacker: Attacker) -> None:
    """A claim with an allocation on the victims' GPU, made with it and written later, and one reserved."""
    path = attacker.resource_path("resourceclaims")
    device_class = f"{attacker.cluster.partition}.gpu.partita.dev"
    spec = {"devices": {"requests": [claim_request(device_class, memory="39Gi")]}}
    status = {"allocation": _allocation(attacker, "39Gi")}
    made = await attacker.api.post(
        path, {"metadata": {"name": "mine"}, "spec": spec, "status": status}
    )
    assert "allocation" not in made.ok().body.get("status", {})
    for forged in (status, {"reservedFor": [{"resource": "pods", "name": "x", "uid": "x"}]}):
        attacker.refused(await attacker.api.patch(f"{path}/mine/status", {"status": forged}))


@action("a claim has no Pods of other namespaces, whatever its owner references say")
async def claim_of_the_victims_pod(attacker: Attacker) -> None:
    """A claim whose owner is the victims' Pod, for more memory than it has, which is then deleted."""
    meta = attacker.cluster.service["metadata"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
    device_class = f"{attacker.cluster.partition}.gpu.partita.dev"
    body = {
        "metadata": {"name": "theirs", "ownerReferences": [{**owner, "controller": True}]},
        "spec": {"devices": {"requests": [claim_request(device_class, memory="39Gi")]}},
    }
    path = attacker.resource_path("resourceclaims")
    (await attacker.api.post(path, body)).ok()
    await attacker.claiming_pod("own", memory="1Gi")
    await attacker.claim_of("own")  # by then the operator knows the other one too
    await attacker.api.delete(f"{path}/theirs")


@action(
    "the operator alone writes the configuration of an allocation; a claim with its own is refused"
)
async def claim_with_parameters_of_its_own(attacker: Attacker) -> None:
    """A claim of 1 GiB whose spec has Partita's parameters for the whole GPU."""
    opaque = _allocation(attacker, "39Gi")["devices"]["config"][0]["opaque"]
    pod = await attacker.claiming_pod("greedy", memory="1Gi", config=[{"opaque": opaque}])
    cluster = attacker.cluster
    await cluster.history.until(
        lambda: "InvalidSpec" in [why for why, _ in cluster.history.events("greedy")]
    )
    assert all(e.get("podUID") != pod["metadata"]["uid"] for e in cluster.ledger.values())


@action("`partita-claim-tolerations` rejects it", real=True)
async def claim_that_kube_scheduler_may_allocate(attacker: Attacker) -> None:
    """Claims and templates that tolerate the taint of the devices, by its key and by all keys."""
    device_class = f"{attacker.cluster.partition}.gpu.partita.dev"
    for key in ({"key": "partita.dev/allocator"}, {}):
        tolerations = [{**key, "operator": "Exists", "effect": "NoSchedule"}]
        spec = {"devices": {"requests": [claim_request(device_class, tolerations=tolerations)]}}
        for plural, content in (
            ("resourceclaims", spec),
            ("resourceclaimtemplates", {"spec": spec}),
        ):
            body = {"metadata": {"name": "tolerant"}, "spec": content}
            attacker.refused(await attacker.api.post(attacker.resource_path(plural), body))


@action("RBAC: device classes and resource slices are the administrators'", real=True)
async def devices_of_ones_own(attacker: Attacker) -> None:
    """Device classes that select the devices without their taint, and slices with devices in Partita's name."""
    classes, slices = f"{CLAIMS}/deviceclasses", f"{CLAIMS}/resourceslices"
    name = f"{attacker.cluster.partition}.gpu.partita.dev"
    pool = {"name": "own", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.partita.dev", "allNodes": True, "pool": pool, "devices": [{"name": "x"}]}
    for answer in (
        await attacker.api.post(classes, {"metadata": {"name": "own.gpu.partita.dev"}}),
        await attacker.api.patch(f"{classes}/{name}", {"spec": {"selectors": None}}),
        await attacker.api.delete(f"{classes}/{name}"),
        await attacker.api.post(slices, {"metadata": {"name": "own"}, "spec": spec}),
    ):
        attacker.refused(answer)


@action("`allowedNamespaces` of the partition")
async def claim_of_a_partition_of_others(attacker: Attacker) -> None:
    """A claim of the device class of a partition that serves others alone."""
    cluster = attacker.cluster
    pod = await attacker.claiming_pod(
        "intruder", request={"deviceClassName": f"{cluster.closed}.gpu.partita.dev"}
    )
    await cluster.history.until(
        lambda: "NamespaceNotAllowed" in [why for why, _ in cluster.history.events("intruder")]
    )
    assert all(e.get("podUID") != pod["metadata"]["uid"] for e in cluster.ledger.values())


@action("templates belong to a namespace, and a Pod finds those of its own only")
async def template_of_another_namespace(attacker: Attacker) -> None:
    """A Pod that names the template of the victims."""
    claims = [{"name": "gpu", "resourceClaimTemplateName": "web"}]
    body = {
        "metadata": {"name": "borrower"},
        "spec": {"containers": [{"name": "main", "image": "i"}], "resourceClaims": claims},
    }
    assert await attacker.pod(body) is not None
    history = attacker.cluster.history
    await history.until(
        lambda: "FailedResourceClaimCreation" in [why for why, _ in history.events("borrower")]
    )


@action("the quotas of the partition")
async def more_claims_than_the_quota_has(attacker: Attacker) -> None:
    """Thirty Pods with claims at once, of ten that the namespace may run, of the highest priority."""
    device_class = f"{attacker.cluster.partition}.gpu.partita.dev"
    await asyncio.gather(*(attacker.claiming_pod(f"many-{n}", memory="512Mi") for n in range(30)))
    cluster = attacker.cluster
    mine = attacker.namespace

    def held() -> int:
        return sum(entry["namespace"] == mine for entry in cluster.ledger.values())

    await cluster.history.until(lambda: held() == 10, what=lambda: (device_class, cluster.ledger))


@action("a quota of memory is also one of MPS clients")
async def more_mps_clients_than_the_quota_stands_for(attacker: Attacker) -> None:
    """Two Pods of 64 MiB with 47 processes each, which are all MPS clients of two GPUs."""
    notes = {"partita.dev/processes": "47"}
    for n in range(2):
        await attacker.claiming_pod(f"clients-{n}", memory="64Mi", annotations=notes)
    history = attacker.cluster.history

    def refused() -> int:
        claims = history.all("resourceclaims", attacker.namespace)
        said = [c["metadata"].get("annotations", {}).get("partita.dev/status", "") for c in claims]
        return sum("MPS clients of namespace" in one for one in said)

    await history.until(lambda: refused() == 2)


@action("an allocation stays in the ledger until its Pod has ended, with or without the claim")
async def claim_deleted_by_force_under_its_pod(attacker: Attacker) -> None:
    """A claim in use without its finalizer and its owner, then deleted, so that its memory looks free."""
    await attacker.claiming_pod("keeper", memory="2Gi")
    claim = await attacker.claim_of("keeper")
    await attacker.cluster.workload_runs(attacker.namespace, "keeper")
    uid, name = claim["metadata"]["uid"], claim["metadata"]["name"]
    path = attacker.resource_path("resourceclaims", name)
    orphaned = {"metadata": {"finalizers": None, "ownerReferences": None}}
    (await attacker.api.patch(path, orphaned)).ok()
    await attacker.api.delete(path)
    (await attacker.api.patch(path, {"metadata": {"finalizers": None}}))
    await attacker.claiming_pod("next", memory="1Gi")
    await attacker.claim_of("next")
    alive = attacker.cluster.history.get("pods", "keeper", attacker.namespace)
    assert uid in attacker.cluster.ledger or alive is None


@action("`partita-metadata` rejects it", real=True)
async def claim_that_says_it_is_allocated(attacker: Attacker) -> None:
    """A claim with Partita's annotation for its status, and a template with it."""
    device_class = f"{attacker.cluster.partition}.gpu.partita.dev"
    notes = {"partita.dev/status": "Allocated: 39.0 GiB on shared-0"}
    body = {
        "metadata": {"name": "liar", "annotations": notes},
        "spec": {"devices": {"requests": [claim_request(device_class)]}},
    }
    attacker.refused(await attacker.api.post(attacker.resource_path("resourceclaims"), body))


@action("kubelet passes no annotation of a Pod to the container runtime as a device")
async def pod_that_names_the_victims_device(attacker: Attacker) -> None:
    """A Pod with CDI's annotation for the device of the victims' claim."""
    uid = next(
        uid
        for uid, entry in attacker.cluster.ledger.items()
        if entry.get("podUID") == attacker.cluster.service["metadata"]["uid"]
    )
    notes = {"cdi.k8s.io/gpu": f"partita.dev/slice={uid}"}
    body = {
        "metadata": {"name": "cdi", "annotations": notes},
        "spec": {"containers": [{"name": "main", "image": "i"}]},
    }
    assert await attacker.pod(body) is not None


@action(AGENT)
async def second_pod_on_a_claim_that_is_allocated(attacker: Attacker) -> None:
    """A Pod that names the claim of another Pod, on the node of that GPU."""
    device_class = f"{attacker.cluster.partition}.gpu.partita.dev"
    spec = {"devices": {"requests": [claim_request(device_class, memory="2Gi")]}}
    path = attacker.resource_path("resourceclaims")
    (await attacker.api.post(path, {"metadata": {"name": "mine"}, "spec": spec})).ok()
    claims = [{"name": "gpu", "resourceClaimName": "mine"}]
    main = {"name": "main", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}
    both = {"containers": [main], "resourceClaims": claims}
    first = await attacker.pod({"metadata": {"name": "first"}, "spec": both})
    assert first is not None
    history, uid = attacker.cluster.history, first["metadata"]["uid"]
    await history.until(
        lambda: any(e.get("podUID") == uid for e in attacker.cluster.ledger.values())
    )
    node = attacker.cluster.gpus[0]["status"]["node"]
    assert await attacker.pod({"metadata": {"name": "second"}, "spec": {**both, "nodeName": node}})
    await history.until(
        lambda: any("a claim is for one Pod" in said for _, said in history.events("second"))
    )
    assert (history.get("pods", "second", attacker.namespace) or {})["status"]["phase"] == "Pending"


@action("jobs and claims are in the ledger by their UIDs, and Pods of jobs by theirs")
async def pod_with_the_name_of_a_jobs_next_attempt(attacker: Attacker) -> None:
    """A Pod and a claim with the names of the next attempt of an own job that runs."""
    job = await attacker.runs("hog")
    await attacker.claiming_pod("hog-2", memory="1Gi")
    await attacker.claim_of("hog-2")
    assert job.status["phase"] == "Running"
