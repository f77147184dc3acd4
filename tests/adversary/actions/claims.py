"""ResourceClaims and their Pods, which a tenant may write in its namespace."""

from __future__ import annotations

from adversary.actions import action
from adversary.attacker import Attacker, Body, pod_body
from partita.claims.claim_statuses import MOST_UNUSED
from partita.partitions.claim_templates import MOST
from support.claims import claim_request

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


@action("a quota of memory is also one of MPS clients")
async def more_mps_clients_than_the_quota_stands_for(attacker: Attacker) -> None:
    """Two Pods of 64 MiB with 47 processes each, which are all MPS clients of two GPUs; and such jobs."""
    notes = {"partita.dev/processes": "47"}
    for n in range(2):
        await attacker.claiming_pod(f"clients-{n}", memory="64Mi", annotations=notes)
    await _say(attacker, "MPS clients of namespace", 2)
    job = await attacker.job("clients", gpuMemory="64Mi", processes=47)
    await job.waits("QuotaExceeded", "MPS clients of namespace")


@action("`services.percent` and quotas bound places too")
async def services_that_take_all_places(attacker: Attacker) -> None:
    """Twelve service Pods of 1 MiB, of ten places that the namespace has."""
    for n in range(12):
        await attacker.claiming_pod(f"tiny-{n}", memory="1Mi")
    await _say(attacker, "QuotaExceeded", 2)


@action("after the first 100 of a namespace they come last")
async def claims_that_no_pod_uses(attacker: Attacker) -> None:
    """More claims without a Pod than anybody needs."""
    device_class = f"{attacker.cluster.partition}.gpu.partita.dev"
    spec = {"devices": {"requests": [claim_request(device_class, memory="1Gi")]}}
    for n in range(MOST_UNUSED + 3):
        body = {"metadata": {"name": f"unused-{n}"}, "spec": spec}
        (await attacker.api.post(attacker.resource_path("resourceclaims"), body)).ok()
    await _say(attacker, "no Pod uses it", MOST_UNUSED + 3)


async def _say(attacker: Attacker, text: str, number: int) -> None:
    """Wait until so many claims of the attacker say why they wait in these words."""
    history = attacker.cluster.history

    def found() -> bool:
        claims = history.all("resourceclaims", attacker.namespace)
        said = [c["metadata"].get("annotations", {}).get("partita.dev/status", "") for c in claims]
        return sum(text in one for one in said) == number

    await history.until(found)


@action("namespaces take turns, and each has a limited number of templates")
async def pods_that_name_more_sizes_than_anybody_needs(attacker: Attacker) -> None:
    """Pods that each name another claim template of the operator."""
    sizes = [f"partita-{(64 + n) << 20}" for n in range(MOST + 3)]
    for n, size in enumerate(sizes):
        entry = {"name": "gpu", "resourceClaimTemplateName": size}
        spec = {"resourceClaims": [entry], "schedulingGates": [{"name": "example.org/later"}]}
        await attacker.pod(pod_body(f"size-{n}", spec=spec))
    history = attacker.cluster.history

    def refused() -> int:
        said = [history.events(f"size-{n}") for n in range(len(sizes))]
        return sum("NoClaimTemplate" in (why for why, _ in each) for each in said)

    await history.until(lambda: refused() >= 3)
    for n, size in enumerate(sizes):
        await attacker.api.delete(attacker.path("pods", f"size-{n}"))
        await attacker.api.delete(attacker.resource_path("resourceclaimtemplates", size))


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
