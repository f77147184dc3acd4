"""A cluster with a victim and an attacker, and what must hold of it after each attack.

The victim has jobs that run and one that waits. The attacker is an ordinary tenant: on the real
API server a user with the rights of Kubernetes' role `edit` and on SharedGPUJobs in its own
namespace. The embedded API server has no RBAC and no admission: there the same requests reach the
operator, which must withstand them by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import aiohttp

from adversary.attacker import LONG, Attacker, Body, workload
from partita.models.quantities import parse_memory
from support.api import Api, condition
from support.claimed_env import parameters_of
from support.clusters import ApiServer
from support.crds import SERVER_NAMESPACE, prepare_namespace
from support.history import GROUP_PATH, History
from support.job import Job
from support.system import System
from support.workloads import CLAIMS

__all__ = ["AttackedCluster", "running_cluster"]

RBAC = "/apis/rbac.authorization.k8s.io/v1"
USER = "mallory"
QUOTA = {"memory": "24Gi", "jobs": 10}
"""What the platform team lets the attacker's namespace have of the shared partition."""
TEAM = "team"
"""Label of namespaces; the closed partition serves those of one team."""
ALIVE = {"Pending", "Running", None}


@dataclass(eq=False)
class AttackedCluster:
    """All that runs, shared by the attacks of one module."""

    server: ApiServer
    system: System
    admin: Api
    attacker: Attacker
    victim: str
    """Namespace of the victim."""
    partition: str
    closed: str
    """A partition that serves the victim alone."""
    running: list[Job] = field(default_factory=list)
    waiting: list[Job] = field(default_factory=list)
    service: Body = field(default_factory=dict)
    """The victim's Pod with a claim."""
    _pods: dict[str, str] = field(default_factory=dict)
    _server_pods: dict[str, str] = field(default_factory=dict)
    _probes: itertools.count[int] = field(default_factory=itertools.count)

    @property
    def history(self) -> History:
        """All versions of all objects."""
        return self.system.history

    @property
    def real(self) -> bool:
        """Whether there is RBAC and admission."""
        return self.server.kind == "apiserver"

    @property
    def gpus(self) -> list[Body]:
        """The GPUServers."""
        return self.history.all("gpuservers")

    @property
    def ledger(self) -> dict[str, Body]:
        """What is allocated on all GPUs, by UID of the claim."""
        return {
            uid: entry
            for gpu in self.gpus
            for uid, entry in (gpu.get("status") or {}).get("allocations", {}).items()
        }

    async def allocated_claim(self, namespace: str, pod: str) -> Body:
        """Wait until a Pod has a claim that is allocated, and return the claim."""

        def found() -> Body | None:
            for claim in self.history.all("resourceclaims", namespace):
                owners = [o["name"] for o in claim["metadata"].get("ownerReferences") or ()]
                if owners == [pod] and (claim.get("status") or {}).get("allocation"):
                    return claim
            return None

        def known() -> object:
            claims = self.history.all("resourceclaims", namespace)
            return [*claims, *self.history.events(pod), *self.system.logs[-20:]]

        return dict(await self.history.until(found, what=known))

    async def workload_runs(self, namespace: str, name: str) -> Body:
        """Wait until a Pod runs, and return it."""

        def running() -> Body | None:
            pod = self.history.get("pods", name, namespace)
            return pod if pod and pod["status"].get("phase") == "Running" else None

        return dict(await self.history.until(running))

    def server_pods(self) -> dict[str, str]:
        """UIDs of the server Pods by their GPUServers."""
        owned = {body["metadata"]["uid"]: body["metadata"]["name"] for body in self.gpus}
        return {
            owned[owner["uid"]]: pod["metadata"]["uid"]
            for pod in self.history.all("pods", SERVER_NAMESPACE)
            for owner in pod["metadata"].get("ownerReferences") or ()
            if owner["uid"] in owned
        }

    async def kubelet(self, pod: Body, phase: str, code: int = 0, message: str = "") -> None:
        """Report of a Pod what the tenant's program brings about."""
        meta = pod["metadata"]
        ended = {"exitCode": code, "reason": "Error" if code else "Completed", "message": message}
        state = {"running": {}} if phase == "Running" else {"terminated": ended}
        if phase == "Pending":
            state = {"waiting": {"reason": "ErrImagePull", "message": message}}
        entry = {"name": "main", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
        status = {"phase": phase, "containerStatuses": [entry | {"state": state}]}
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/status"
        (await self.admin.patch(path, {"status": status})).ok()

    @contextlib.asynccontextmanager
    async def acting_as(self, user: str) -> AsyncIterator[Api]:
        """A client with the rights of another user; of everybody where there are none."""
        headers = {"Impersonate-User": user} if self.real else {}
        async with _session(self.server, headers) as session:
            yield self.server.api(session)

    # What must hold.

    async def settled(self) -> None:
        """Note how everything is before the first attack."""
        for job in self.running:
            await job.runs()
        for job in self.waiting:
            await job.until(lambda status: status.get("phase") == "Queued")
        self._pods = {job.uid: (job.pod() or {})["metadata"]["uid"] for job in self.running}
        self._server_pods = self.server_pods()

    async def holds(self) -> None:
        """Assert that no attack so far has done any harm to others."""
        await self._another_job_runs()
        problems = [
            *await self.history.judged(),
            *self._lost(),
            *self._above_capacity(),
            *self._told_to_attacker(),
            *await self._read_by_attacker(),
            *self._operator_in_trouble(),
        ]
        assert not problems, "\n".join(problems)

    async def _another_job_runs(self) -> None:
        name = f"probe-{next(self._probes)}"
        job = await self.system.job(name, self.partition, gpuMemory="4Gi", namespace=self.victim)
        await job.succeeds()
        assert job.outcomes == ["Succeeded"], job.status
        await job.delete()
        # All that the attack made known to the operator before is worked off by then, too.
        await job.gone()

    def _lost(self) -> list[str]:
        """Name what of the victim's jobs, and of the GPUs, is not as it was."""
        problems = []
        for job in self.running:
            pod = job.pod()
            same = pod is not None and pod["metadata"]["uid"] == self._pods[job.uid]
            if job.outcomes != [""] or job.status.get("phase") != "Running" or not same:
                problems.append(f"{job.name} is {json.dumps(job.status)}, its Pod is there: {same}")
            elif "deletionTimestamp" in (pod or {})["metadata"]:
                problems.append(f"the Pod of {job.name} is being deleted")
        meta = self.service["metadata"]
        pod = self.history.get("pods", meta["name"], meta["namespace"]) or {"metadata": {}}
        if pod["metadata"].get("uid") != meta["uid"] or "deletionTimestamp" in pod["metadata"]:
            problems.append(f"the Pod {meta['name']} of the victim is {json.dumps(pod)[:1000]}")
        if all(entry.get("podUID") != meta["uid"] for entry in self.ledger.values()):
            problems.append(f"the Pod {meta['name']} of the victim has no allocation")
        problems += [
            f"{job.name} is {json.dumps(job.status)}"
            for job in self.waiting
            if job.status.get("phase") != "Queued" or job.outcomes
        ]
        if self.server_pods() != self._server_pods:
            problems.append(f"server Pods were {self._server_pods}, are {self.server_pods()}")
        problems += [
            f"{gpu['metadata']['name']} is not ready: {json.dumps(gpu['status'])}"
            for gpu in self.gpus
            if condition(gpu, "Ready")[0] != "True"
        ]
        return problems

    def _above_capacity(self) -> list[str]:
        """Add up what the Pods of jobs may use that live, by their claims.

        A forged Pod may name the claim of a job: the agent does not let it run.
        """
        used: dict[str, int] = {}
        for pod in self.history.all("pods"):
            phase = pod.get("status", {}).get("phase")
            forged = pod["metadata"]["uid"] in self.history.forged
            if phase == "Running" or (phase in ALIVE and not forged):
                for _, slice_ in parameters_of(self.history, pod):
                    used[slice_.gpu_server] = used.get(slice_.gpu_server, 0) + slice_.memory
        capacity = {
            gpu["metadata"]["name"]: parse_memory(gpu["status"]["memory"])
            for gpu in self.gpus
            if gpu.get("status", {}).get("uuid")
        }
        return [
            f"Pods on {name} may use {amount} of {capacity.get(name, 0)} bytes"
            for name, amount in used.items()
            if amount > capacity.get(name, 0)
        ]

    def _told_to_attacker(self) -> list[str]:
        """Name objects in its namespace in which the operator names another's."""
        problems = []
        for plural in ("sharedgpujobs", "pods", "resourceclaims", "events"):
            for body in self.history.all(plural, self.attacker.namespace):
                ours = plural != "events" or body.get("source", {}).get("component") == "partita"
                said = body.get("message", "") if plural == "events" else body.get("status", {})
                if ours and self.victim in json.dumps(said):
                    problems.append(f"{plural} {body['metadata']['name']} says {json.dumps(said)}")
        return problems

    async def _read_by_attacker(self) -> list[str]:
        """Name what of others it may read; without RBAC nothing keeps it from that."""
        if not self.real:
            return []
        core = ("pods", "secrets", "configmaps", "events", "serviceaccounts")
        victims = [self.attacker.path(plural, namespace=self.victim) for plural in core]
        theirs = f"{GROUP_PATH}/namespaces/{self.victim}"
        victims += [f"{theirs}/sharedgpujobs", f"{theirs}/applicationprofiles"]
        all_of = [f"/api/v1/{plural}" for plural in (*core, "nodes", "namespaces")]
        all_of += [
            f"{GROUP_PATH}/{plural}"
            for plural in ("sharedgpujobs", "gpuservers", "applicationprofiles")
        ]
        all_of.append(self.attacker.path("pods", namespace=SERVER_NAMESPACE))
        answers = await asyncio.gather(*(self.attacker.api.get(p) for p in victims + all_of))
        return [
            f"the attacker may read {path}: {answer.status}"
            for path, answer in zip(victims + all_of, answers, strict=True)
            if answer.status != 403
        ]

    def _operator_in_trouble(self) -> list[str]:
        return [
            f"the operator logs {json.dumps(entry, default=str)[:2000]}"
            for entry in self.system.logs
            if entry.get("log_level") in {"error", "critical"} or entry.get("exc_info")
        ]

    async def clean(self) -> None:
        """Remove what the attacker has made."""
        await asyncio.gather(*(self._remove(body) for body in self._made_by_attacker()))
        await self.history.until(
            lambda: not [*self._made_by_attacker(), *self._allocated_to_attacker()],
            what=lambda: [*self._made_by_attacker(), *self._allocated_to_attacker()],
        )
        templates = self.attacker.resource_path("resourceclaimtemplates")
        for body in (await self.admin.get(templates)).ok().body["items"]:
            await self.admin.delete(f"{templates}/{body['metadata']['name']}")
        self.system.logs.clear()

    def _made_by_attacker(self) -> list[Body]:
        kinds = ("sharedgpujobs", "pods", "resourceclaims")
        return [body for kind in kinds for body in self.history.all(kind, self.attacker.namespace)]

    def _allocated_to_attacker(self) -> list[Body]:
        """Return its entries in the ledgers: for one of these the operator may still make a Pod."""
        return [
            entry
            for server in self.history.all("gpuservers")
            for entry in server.get("status", {}).get("allocations", {}).values()
            if entry["namespace"] == self.attacker.namespace
        ]

    async def _remove(self, body: Body) -> None:
        name, is_pod = body["metadata"]["name"], "containers" in body["spec"]
        path = (
            self.attacker.path("pods", name)
            if is_pod
            else self.attacker.job_path(name)
            if "template" in body["spec"]
            else self.attacker.resource_path("resourceclaims", name)
        )
        await self.admin.patch(path, {"metadata": {"finalizers": None}})
        await self.admin.delete(path, {"gracePeriodSeconds": 0} if is_pod else None)


@contextlib.asynccontextmanager
async def running_cluster(
    server: ApiServer, system: System, admin: Api
) -> AsyncIterator[AttackedCluster]:
    """Run nodes, operator, the victim's jobs, and give the attacker its rights."""
    stem = system.stem
    victim, attacker = await _tenant(admin, "victim", stem), await _tenant(admin, "attacker", stem)
    system.namespaces += [victim, attacker]
    await _grant(admin, attacker)
    headers = {"Impersonate-User": USER} if server.kind == "apiserver" else {}
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(system.nodes(3))
        await stack.enter_async_context(system.operator())
        session = await stack.enter_async_context(_session(server, headers))
        partition = await system.partition(
            2,
            preemption="LowerPriority",
            policy={"maxBypasses": 10000},
            quotas=[{"namespace": attacker, **QUOTA}],
        )
        closed = await system.partition(
            1, name="closed", allowedNamespaces={"matchLabels": {TEAM: f"victim-{stem}"}}
        )
        await system.ready(partition, 2)
        await system.ready(closed)
        cluster = AttackedCluster(
            server,
            system,
            admin,
            None,
            victim,
            partition,
            closed,  # type: ignore[arg-type]
        )
        cluster.attacker = Attacker(cluster, server.api(session), attacker)

        async def submit(name: str, where: str, memory: str) -> Job:
            return await system.job(name, where, gpuMemory=memory, namespace=victim, sim=LONG)

        cluster.running = [
            await submit("train", partition, "20Gi"),
            await submit("serve", partition, "20Gi"),
            await submit("closed", closed, "8Gi"),
        ]
        template, pod = workload("web", f"{partition}.gpu.partita.dev")
        mine = f"{CLAIMS}/namespaces/{victim}/resourceclaimtemplates"
        (await admin.post(mine, template)).ok()
        (await admin.post(f"/api/v1/namespaces/{victim}/pods", pod)).ok()
        for job in cluster.running:
            await job.runs()
        cluster.service = await cluster.workload_runs(victim, "web")
        cluster.waiting = [await submit("waits", partition, "30Gi")]
        await cluster.settled()
        yield cluster
        await admin.delete(f"/api/v1/namespaces/{victim}/pods/web", {"gracePeriodSeconds": 0})
        await system.settle()


def _session(server: ApiServer, headers: dict[str, str]) -> aiohttp.ClientSession:
    ours = {"Authorization": f"Bearer {server.token}"} if server.token else {}
    return aiohttp.ClientSession(headers={**ours, **headers})


async def _tenant(api: Api, name: str, stem: str) -> str:
    labels = {TEAM: f"{name}-{stem}", "pod-security.kubernetes.io/enforce": "baseline"}
    namespace = f"{name}-{stem}"
    meta = {"name": namespace, "labels": labels}
    (await api.post("/api/v1/namespaces", {"metadata": meta})).ok()
    await prepare_namespace(api, namespace)
    return namespace


async def _grant(api: Api, namespace: str) -> None:
    """Give the attacker what a team has in its namespace.

    Kubernetes' role `edit` is put together of these two by a controller that does not run here:
    https://kubernetes.io/docs/reference/access-authn-authz/rbac/#user-facing-roles.
    """
    rules = [
        {"apiGroups": ["partita.dev"], "resources": ["sharedgpujobs"], "verbs": ["*"]},
        {
            "apiGroups": ["partita.dev"],
            "resources": ["applicationprofiles"],
            "verbs": ["get", "list", "watch"],
        },
    ]
    role = {"metadata": {"name": "shares-gpus"}, "rules": rules}
    await api.post(f"{RBAC}/namespaces/{namespace}/roles", role)
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}
    roles = ("system:aggregate-to-edit", "system:aggregate-to-view")
    for kind, name in [("Role", "shares-gpus"), *(("ClusterRole", name) for name in roles)]:
        binding = {
            "metadata": {"name": name.replace(":", "-")},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
            "subjects": [subject],
        }
        await api.post(f"{RBAC}/namespaces/{namespace}/rolebindings", binding)
