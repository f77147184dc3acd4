"""Deployments whose Pods have claims, what people and kube-scheduler do to claims, and the verdict.

The claims of jobs suffer the same as those of the Deployments. The Deployments live through all rounds, in a partition of their own: there no job waits for what
never ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from chaos.calls import by_name, call, pick
from chaos.plan import Action
from partita.models.device_class import names_device_class
from partita.pods.own_claims import is_own_claim
from support.api import Api
from support.history import Body, History
from support.record import Record

__all__ = ["WORKLOADS", "WorkloadFaults", "create_workloads", "delete_workloads", "wrong_workloads"]


APPS = "/apis/apps/v1/namespaces"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces"
PARTITION = "serving"
MEMORY = 1 << 30
WORKLOADS = {("red", "web"): 3, ("blue", "api"): 2}
"""Namespace and name of each Deployment, and its replicas while nobody changes them."""
_MOST = 6
"""Most replicas to which a Deployment is scaled."""


def deployment(name: str, replicas: int) -> Body:
    """A Deployment whose Pods name the template of their claim by its size."""
    main = {"name": "main", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}
    template = f"partita-{PARTITION}-{MEMORY}"
    labels = {"app": name}
    return {
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "containers": [main],
                    "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": template}],
                    "schedulingGates": [{"name": "partita.dev/allocation"}],
                    "terminationGracePeriodSeconds": 1,
                },
            },
        },
    }


async def create_workloads(api: Api) -> None:
    """Create the Deployments."""
    for (namespace, name), replicas in WORKLOADS.items():
        path = f"{APPS}/{namespace}/deployments"
        (await api.post(path, deployment(name, replicas))).ok()


async def delete_workloads(api: Api) -> None:
    """Delete the Deployments; the garbage collector deletes their Pods."""
    for namespace, name in WORKLOADS:
        path = f"{APPS}/{namespace}/deployments/{name}"
        await call(lambda path=path: api.delete(path))  # type: ignore[misc]


@dataclass(eq=False)
class WorkloadFaults:
    """Carries out what people and Kubernetes do to claims and their Pods."""

    history: History
    api: Api

    def _claim(self, action: Action) -> Body | None:
        """Pick a claim of a Deployment's Pod or of a job."""
        return pick(action.pick, sorted(_partita_claims(self.history), key=by_name))

    async def _patch_claim(self, claim: Body | None, patch: Body, subresource: str = "") -> bool:
        if claim is None:
            return False
        path = f"{_path_of(claim)}{subresource}"
        return (await call(lambda: self.api.patch(path, patch))).status == 200

    async def _delete_claim(self, action: Action) -> bool:
        """Somebody deletes a claim: at times also its finalizer, so that it is gone at once."""
        claim = self._claim(action)
        if claim is None:
            return False
        done = await call(lambda: self.api.delete(_path_of(claim)))
        if action.times > 1:
            await self._patch_claim(claim, {"metadata": {"finalizers": None}})
        return done.status < 300

    async def _edit_claim(self, action: Action) -> bool:
        """Somebody takes all metadata off a claim, its owner too, and adds a label.

        The policy `partita-metadata`, which is not installed here, keeps the owners of jobs' claims.
        """
        claim = self._claim(action)
        meta: Body = {"annotations": None, "labels": {"edited": "yes"}}
        if action.times > 1 and claim is not None and not _is_of_partita(claim):
            meta |= {"ownerReferences": None}
        return await self._patch_claim(claim, {"metadata": meta})

    async def _deallocate_claim(self, action: Action) -> bool:
        """Something clears an allocation, as kube-scheduler does, or under a Pod that runs."""
        status: Body = {"allocation": None, "reservedFor": None}
        return await self._patch_claim(self._claim(action), {"status": status}, "/status")

    async def _delete_workload_pod(self, action: Action) -> bool:
        """Somebody deletes a Pod of a Deployment, at times by force."""
        options = {"gracePeriodSeconds": 0} if action.times > 1 else {}
        pod = pick(action.pick, sorted(workload_pods(self.history), key=by_name))
        return await self._delete_pod(pod, **options)

    async def _delete_pod(self, pod: Body | None, **options: Any) -> bool:
        if pod is None:
            return False
        meta = pod["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        body = {"preconditions": {"uid": meta["uid"]}, **options}
        return (await call(lambda: self.api.delete(path, body))).status < 300

    async def _scale_workload(self, action: Action) -> bool:
        """Somebody scales a Deployment."""
        place = pick(action.pick, sorted(WORKLOADS))
        assert place is not None
        return await self._scaled(*place, action.times % (_MOST + 1))

    async def _scaled(self, namespace: str, name: str, replicas: int) -> bool:
        path = f"{APPS}/{namespace}/deployments/{name}/scale"
        done = await call(lambda: self.api.patch(path, {"spec": {"replicas": replicas}}))
        return done.status == 200

    async def mend_workloads(self) -> None:
        """Scale the Deployments back, and delete the Pods whose claim somebody has deleted.

        kube-controller-manager makes such a claim anew only if it is older than a minute: until
        then it finds the old one in its cache (`claimCache` in k8s.io/kubernetes v1.36.3,
        pkg/controller/resourceclaim/controller.go), and later nothing has it look again.
        """
        for (namespace, name), replicas in WORKLOADS.items():
            await self._scaled(namespace, name, replicas)
        claims = {by_name(claim) for claim in _claims(self.history)}
        for pod in list(workload_pods(self.history)):
            namespace, _ = by_name(pod)
            made = (pod.get("status") or {}).get("resourceClaimStatuses") or ()
            if any((namespace, one.get("resourceClaimName")) not in claims for one in made):
                await self._delete_pod(pod)


def _path_of(claim: Body) -> str:
    namespace, name = by_name(claim)
    return f"{CLAIMS}/{namespace}/resourceclaims/{name}"


def workload_pods(record: Record) -> Iterator[Body]:
    """Return the Pods of the Deployments that are there."""
    return (pod for pod in record.all("pods") if "app" in (pod["metadata"].get("labels") or {}))


def wrong_workloads(record: Record, wanted: dict[tuple[str, str], int]) -> Iterator[str]:
    """Name what of workloads, claims and ledgers does not agree, once nothing goes wrong.

    Parameters
    ----------
    wanted
        The replicas of each Deployment, by namespace and name.
    """
    pods = {pod["metadata"]["uid"]: pod for pod in workload_pods(record)}
    for (namespace, name), replicas in wanted.items():
        running = [
            by_name(pod)
            for pod in pods.values()
            if pod["metadata"]["namespace"] == namespace
            and (pod["metadata"].get("labels") or {}).get("app") == name
            and pod["status"].get("phase") == "Running"
            and "deletionTimestamp" not in pod["metadata"]
        ]
        if len(running) != replicas:
            yield f"{namespace}/{name} wants {replicas} replicas, and {running} run"
    ledger = {
        uid: (server["metadata"]["name"], entry)
        for server in record.all("gpuservers")
        for uid, entry in (server.get("status") or {}).get("allocations", {}).items()
        if "job" not in entry
    }
    claims = {claim["metadata"]["uid"]: claim for claim in _claims(record)}
    for uid, (_, entry) in ledger.items():
        if entry["podUID"] not in pods:
            yield f"{entry['pod']} is in the ledger by claim {uid}, and there is no such Pod"
    for uid, claim in claims.items():
        results = _results(claim)
        if bool(results) != (uid in ledger):
            yield f"claim {by_name(claim)} has {results}, and the ledger has it: {uid in ledger}"
        elif results and results[0]["pool"] != ledger[uid][0]:
            yield f"claim {by_name(claim)} has {results}, and the ledger says {ledger[uid][0]}"
    for uid, pod in pods.items():
        held = [claim for claim, (_, entry) in ledger.items() if entry["podUID"] == uid]
        if len(held) > 1:
            yield f"Pod {by_name(pod)} has {len(held)} allocations: {held}"


def _partita_claims(record: Record) -> Iterator[Body]:
    """Return all claims for Partita's devices."""
    return (claim for claim in record.all("resourceclaims") if names_device_class(claim["spec"]))


def _claims(record: Record) -> Iterator[Body]:
    """Return the claims for Partita's devices but those that its operator makes for jobs."""
    return (claim for claim in _partita_claims(record) if not _is_of_partita(claim))


def _is_of_partita(claim: Body) -> bool:
    """Return whether Partita's operator makes a claim: for a job, or for a probe Pod."""
    return is_own_claim(str(claim["metadata"]["name"]))


def _results(claim: Body) -> list[Body]:
    allocation: Body = (claim.get("status") or {}).get("allocation") or {}
    results: list[Body] = allocation.get("devices", {}).get("results", [])
    return results
