"""Lets happen what the plan says, to whatever is there by then."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import uuid4

from chaos.calls import ANSWERS_WITHIN as LEADS_WITHIN
from chaos.calls import by_name, call, pick
from chaos.operators import LEASE, Operator, Operators
from chaos.plan import PARTITIONS, Action
from chaos.plane import ChaosPlane
from chaos.workloads import PARTITION, WorkloadFaults
from partita.models import GPUServer
from support.api import STRATEGIC
from support.faults import (
    When,
    conflict,
    everything,
    internal_error,
    too_many_requests,
    unavailable,
    writes,
)
from support.history import GROUP_PATH, Body

__all__ = ["LEASES", "OWN", "Faults", "partition_spec"]


LEASES = "/apis/coordination.k8s.io/v1/namespaces/partita-system/leases"
OWN, OWN_NODE = "chaos.partita.dev/own", "sim-3"
"""The taint of the node that only one partition takes GPUs of, and that node."""
_COMPONENT = "partita.dev/component"
_BROKEN: dict[str, Body] = {
    "cut-before": {"match": everything, "cut": True},
    "cut-after": {"match": writes(), "cut": True, "when": When.AFTER},
    "delay": {"match": everything},
    "storm-409": {"match": writes(), "answer": conflict()},
    "storm-429": {"match": everything, "answer": too_many_requests()},
    "storm-500": {"match": everything, "answer": internal_error()},
    "storm-503": {"match": everything, "answer": unavailable()},
}
"""How requests fail, by the kind of action."""


def partition_spec(name: str) -> Body:
    """Return a partition's spec as it is while nobody changes it."""
    plan = PARTITIONS[name]
    policy = {"name": plan.policies[0], "maxBypasses": plan.max_bypasses}
    tolerations = [{"key": OWN, "operator": "Exists"}]
    alone = {"tolerations": tolerations, "nodeSelector": {"kubernetes.io/hostname": OWN_NODE}}
    return {
        **(alone if plan.own_node else {}),
        "gpus": plan.gpus,
        "policy": policy,
        "sharing": {"mode": plan.mode},
        "preemption": plan.preemption,
        "maxPriority": 10,
        "drainTimeout": "3s",
        "services": {"percent": 100},
    }


@dataclass(eq=False)
class Faults(WorkloadFaults):
    """Carries out actions; kills come one after another, all else at the same time.

    Attributes
    ----------
    happened, came_to_nothing
        How often each action struck, and how often there was nothing to strike.
    """

    plane: ChaosPlane
    operators: Operators
    nodes: Sequence[str]
    happened: Counter[str] = field(default_factory=Counter)
    came_to_nothing: Counter[str] = field(default_factory=Counter)
    _killing: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def strike(self, action: Action) -> None:
        """Let one action happen, to its end."""
        name, _, _ = action.kind.partition("-")
        if name in {"kill", "term", "freeze"}:
            async with self._killing:
                done = await self._kill(action)
        elif action.kind in _BROKEN:
            done = await self._break_requests(action)
        else:
            done = await getattr(self, f"_{action.kind.replace('-', '_')}")(action)
        (self.happened if done else self.came_to_nothing)[action.kind] += 1

    # Kills.

    async def _kill(self, action: Action) -> bool:
        operators = self.operators
        if action.kind in {"kill-apiserver", "kill-etcd"}:
            name = "etcd" if action.kind == "kill-etcd" else "kube-apiserver"
            await self.plane.kill(name, action.seconds)
            return True
        async with asyncio.timeout(LEADS_WITHIN):
            while operators.leader is None or operators.standby is None:
                await asyncio.sleep(0.02)
        leader, standby = operators.leader, operators.standby
        match action.kind:
            case "kill-leader":
                return await operators.kill(leader)
            case "kill-standby":
                return await operators.kill(standby)
            case "kill-both":
                return all([await operators.kill(leader), await operators.kill(standby)])
            case "term-leader":
                return await operators.stop(leader)
            case "freeze-leader":
                return await operators.put_to_sleep(leader, action.seconds)
            case _:
                return await operators.stun(standby, action.seconds)

    # Requests.

    async def _break_requests(self, action: Action) -> bool:
        found = self._operator(action)
        if found is None:
            return False
        delay = action.seconds if action.kind == "delay" else 0.0
        fault = found.proxy.inject(times=action.times, delay=delay, **_BROKEN[action.kind])
        await asyncio.sleep(action.seconds + 1)
        found.proxy.remove(fault)
        return fault.happened > 0

    def _operator(self, action: Action) -> Operator | None:
        """The leader, as a rule."""
        leader = self.operators.leader
        return leader if leader and action.pick < 0.8 else pick(action.pick, self.operators.running)

    async def _drop_watches(self, action: Action) -> bool:
        found = self._operator(action)
        return found is not None and found.proxy.drop_watches() > 0

    async def _outage(self, action: Action) -> bool:
        found = self._operator(action)
        if found is not None:
            with found.proxy.outage():
                await asyncio.sleep(action.seconds)
        return found is not None

    # Nodes.

    async def _node_gone(self, action: Action) -> bool:
        node = pick(action.pick, self.nodes)
        gone = await call(lambda: self.api.delete(f"/api/v1/nodes/{node}"))
        await asyncio.sleep(action.seconds)
        await self._node_back(str(node))
        return gone.status == 200

    async def taint(self) -> None:
        """Keep others from the node that only one partition takes GPUs of."""
        patch = {"spec": {"taints": [{"key": OWN, "effect": "NoSchedule"}]}}
        (await self.api.patch(f"/api/v1/nodes/{OWN_NODE}", patch)).ok()

    async def _node_back(self, name: str) -> None:
        taints = [{"key": OWN, "effect": "NoSchedule"}] if name == OWN_NODE else []
        spec = {"taints": taints}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec}
        await call(lambda: self.api.post("/api/v1/nodes", node))

    async def _node_silent(self, action: Action) -> bool:
        """Have a Node say for a while that its kubelet does not answer."""
        path = f"/api/v1/nodes/{pick(action.pick, self.nodes)}/status"

        async def say(ready: str) -> bool:
            patch = {"status": {"conditions": [{"type": "Ready", "status": ready}]}}
            return (await call(lambda: self.api.patch(path, patch, STRATEGIC))).status == 200

        done = await say("Unknown")
        await asyncio.sleep(action.seconds)
        await say("True")
        return done

    async def _cordon(self, action: Action) -> bool:
        path = f"/api/v1/nodes/{pick(action.pick, self.nodes)}"
        done = await call(lambda: self.api.patch(path, {"spec": {"unschedulable": True}}))
        await asyncio.sleep(action.seconds)
        await call(lambda: self.api.patch(path, {"spec": {"unschedulable": None}}))
        return done.status == 200

    async def _suffer(self, action: Action) -> bool:
        """Let a GPU fail: its simulated agent looks for this annotation."""
        server = self._server(action)
        if server is None:
            return False
        patch = {"metadata": {"annotations": {"sim.partita.dev/fault": action.kind}}}
        done = await call(lambda: self.api.patch(self._path(server), patch))
        return done.status == 200

    _mps = _gpu_lost = _xid = _suffer

    # People.

    def _job_pod(self, action: Action) -> Body | None:
        pods = [
            pod
            for pod in self.history.job_pods_now()
            if pod["status"].get("phase") not in {"Succeeded", "Failed"}
        ]
        return pick(action.pick, sorted(pods, key=by_name))

    def _server(self, action: Action) -> Body | None:
        return pick(action.pick, sorted(self.history.all("gpuservers"), key=by_name))

    def _path(self, server: Body) -> str:
        return f"{GROUP_PATH}/gpuservers/{server['metadata']['name']}"

    async def _delete_job_pod(self, action: Action) -> bool:
        return await self._delete_pod(self._job_pod(action))

    async def _remove_job_pod(self, action: Action) -> bool:
        return await self._delete_pod(self._job_pod(action), gracePeriodSeconds=0)

    async def _remove_new_pod(self, action: Action) -> bool:
        """Delete the next Pod of a job without grace, as soon as it is there."""
        before = {pod["metadata"]["uid"] for pod in self.history.job_pods()}

        def made() -> list[Body]:
            now = self.history.job_pods_now()
            return [pod for pod in now if pod["metadata"]["uid"] not in before]

        try:
            found = await self.history.until(made, seconds=1 + action.seconds)
        except AssertionError:
            return False
        return await self._delete_pod(found[0], gracePeriodSeconds=0)

    async def _delete_server_pod(self, action: Action) -> bool:
        server = self._server(action)
        return server is not None and await self._delete_pod(self._pod_of(server))

    def _pod_of(self, server: Body) -> Body | None:
        label, name = "partita.dev/server", server["metadata"]["name"]
        return next(
            (
                pod
                for pod in self.history.all("pods")
                if (pod["metadata"].get("labels") or {}).get(label) == name
                and pod["metadata"]["labels"].get(_COMPONENT) == "server"
            ),
            None,
        )

    async def _without_plugin(self, action: Action) -> bool:
        """The agent of workloads goes, and one of their Pods: the next one finds no plugin."""
        servers = [s for s in self.history.all("gpuservers") if s["spec"]["partition"] == PARTITION]
        server = pick(action.pick, sorted(servers, key=by_name))
        gone = server is not None and await self._delete_pod(self._pod_of(server))
        return await self._delete_workload_pod(action) and gone

    async def _delete_server(self, action: Action) -> bool:
        server = self._server(action)
        if server is None:
            return False
        return (await call(lambda: self.api.delete(self._path(server)))).status == 200

    async def _forget_server(self, action: Action) -> bool:
        """Somebody empties what the agent reported; and has the agent start again."""
        server = self._server(action)
        if server is None:
            return False
        kept = {"allocations"}
        status = {key: None for key in server.get("status") or {} if key not in kept}
        done = await call(
            lambda: self.api.patch(f"{self._path(server)}/status", {"status": status})
        )
        await self._delete_pod(self._pod_of(server))
        return done.status == 200

    async def _drop_allocation(self, action: Action) -> bool:
        server = self._server(action)
        allocated = sorted(((server or {}).get("status") or {}).get("allocations") or {})
        uid = pick(action.pick, allocated)
        return uid is not None and await self._edit_ledger(server or {}, {uid: None})

    async def _stray_allocation(self, action: Action) -> bool:
        """Somebody allocates for a job that there never was, on a GPU that nobody is alone on."""
        body = self._server(action)
        server = GPUServer.parse(body) if body is not None else None
        if body is None or server is None or server.status.memory == 0:
            return False
        allocated = server.status.allocations.values()
        if (
            any(a.alone for a in allocated)
            or sum(a.memory for a in allocated) > server.status.memory / 2
        ):
            return False
        entry = {
            "namespace": "red",
            "name": "never-was-1.partita.dev",
            "job": "never-was",
            "jobUID": str(uuid4()),
            "pod": "never-was-1",
            "podUID": str(uuid4()),
            "memory": "1Mi",
            "since": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        # Another claim each time: one on two GPUs at once is what the judge looks for.
        return await self._edit_ledger(body, {str(uuid4()): entry})

    async def _edit_ledger(self, server: Body, entries: Body) -> bool:
        version = server["metadata"]["resourceVersion"]
        patch = {"metadata": {"resourceVersion": version}, "status": {"allocations": entries}}
        done = await call(lambda: self.api.patch(f"{self._path(server)}/status", patch))
        if done.status == 200:
            self.history.by_hand.add(int(done.version))
        return done.status == 200

    async def _change_job(self, action: Action) -> bool:
        job = pick(action.pick, sorted(self.history.all("sharedgpujobs"), key=by_name))
        if job is None:
            return False
        namespace, name = by_name(job)
        path = f"{GROUP_PATH}/namespaces/{namespace}/sharedgpujobs/{name}"
        patch = {"metadata": {"labels": {"edited": "yes"}}, "spec": {"expectedDuration": "9s"}}
        return (await call(lambda: self.api.patch(path, patch))).status == 200

    async def _delete_lease(self, _: Action) -> bool:
        return (await call(lambda: self.api.delete(f"{LEASES}/{LEASE}"))).status == 200

    async def _steal_lease(self, _: Action) -> bool:
        patch = {"spec": {"holderIdentity": "somebody", "leaseDurationSeconds": 2}}
        return (await call(lambda: self.api.patch(f"{LEASES}/{LEASE}", patch))).status == 200

    async def _scale(self, action: Action) -> bool:
        name = pick(action.pick, sorted(PARTITIONS)) or ""
        replicas = int(action.seconds / 2.0 * (PARTITIONS[name].gpus + 2))
        path = f"{GROUP_PATH}/gpupartitions/{name}/scale"
        done = await call(lambda: self.api.patch(path, {"spec": {"replicas": replicas}}))
        return done.status == 200

    async def _policy(self, action: Action) -> bool:
        policy = pick(action.pick, PARTITIONS["shared"].policies)
        path = f"{GROUP_PATH}/gpupartitions/shared"
        patch = {"spec": {"policy": {"name": policy}}}
        return (await call(lambda: self.api.patch(path, patch))).status == 200

    # Everything as it was.

    async def mend(self) -> None:
        """Bring back what may be gone, and change back what was changed."""
        for node in self.nodes:
            await self._node_back(node)
        for name in PARTITIONS:
            patch = {"spec": partition_spec(name)}
            path = f"{GROUP_PATH}/gpupartitions/{name}"
            (await call(lambda path=path, patch=patch: self.api.patch(path, patch))).ok()  # type: ignore[misc]
        await self.mend_workloads()
