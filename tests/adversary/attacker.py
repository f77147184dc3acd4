"""An ordinary tenant who attacks, and the objects that it makes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from support.api import Answer, Api
from support.claims import claim_request
from support.history import GROUP_PATH, Body
from support.job import Job, container
from support.workloads import CLAIMS

if TYPE_CHECKING:
    from adversary.attacked_cluster import AttackedCluster

__all__ = ["LONG", "Attacker", "Body", "NotRefusedError", "env_pod", "pod_body", "workload"]


LONG = {"duration": "9999h"}
"""A program that does not end while all attacks are tried, a hundred times as fast as it says."""


class NotRefusedError(AssertionError):
    """A request took effect that must be refused."""


def pod_body(name: str, *, spec: Body | None = None, **meta: Any) -> Body:
    """A Pod that a tenant makes, allowed by Pod Security `baseline`."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **meta},
        "spec": {
            "containers": [container()],
            "automountServiceAccountToken": False,
            **(spec or {}),
        },
    }


def env_pod(name: str, **variables: str) -> Body:
    """A Pod whose container has these variables."""
    env = [{"name": key, "value": value} for key, value in variables.items()]
    return pod_body(name, spec={"containers": [container(env=env)]})


def workload(
    name: str,
    device_class: str,
    *,
    memory: str = "4Gi",
    spec: Body | None = None,
    config: list[Body] | None = None,
    **meta: Any,
) -> tuple[Body, Body]:
    """Return the template of a claim, and a Pod with it that does not end by itself."""
    devices: Body = {"requests": [claim_request(device_class, memory=memory)]}
    if config:
        devices["config"] = config
    template = {"metadata": {"name": name}, "spec": {"spec": {"devices": devices}}}
    main = container(resources={"claims": [{"name": "gpu"}]})
    pod = {
        "containers": [main],
        "automountServiceAccountToken": False,
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": name}],
        **(spec or {}),
    }
    return template, {"metadata": {"name": name, **meta}, "spec": pod}


@dataclass(eq=False)
class Attacker:
    """An ordinary tenant, and what it knows: everything that is not secret."""

    cluster: AttackedCluster
    api: Api
    namespace: str

    def path(self, plural: str, name: str = "", namespace: str = "") -> str:
        """Path of a core object in its namespace, or in another's."""
        path = f"/api/v1/namespaces/{namespace or self.namespace}/{plural}"
        return f"{path}/{name}" if name else path

    def job_path(self, name: str = "", namespace: str = "") -> str:
        """Path of a SharedGPUJob in its namespace, or in another's."""
        path = f"{GROUP_PATH}/namespaces/{namespace or self.namespace}/sharedgpujobs"
        return f"{path}/{name}" if name else path

    async def pod(self, body: Body) -> Body | None:
        """Create a Pod; return it, or None if the API server refuses it."""
        answer = await self.api.post(self.path("pods"), body)
        if answer.status >= 400:
            return None
        self.cluster.history.forged.add(answer.body["metadata"]["uid"])
        return dict(answer.body)

    async def forge_pod(self, body: Body) -> Body | None:
        """Create a Pod in the operator's name; return it where there is no admission.

        Raises
        ------
        NotRefusedError
            Admission took it.
        """
        pod = await self.pod(body)
        if pod is not None and self.cluster.real:
            raise NotRefusedError(f"took {json.dumps(body)[:1000]}")
        return pod

    async def patch_pod(self, name: str, meta: Body) -> Answer:
        """Change the metadata of one of its Pods."""
        return await self.api.patch(self.path("pods", name), {"metadata": meta})

    async def forge_metadata(self, name: str, meta: Body) -> None:
        """Change of one of its Pods what the operator wrote; admission refuses it.

        Raises
        ------
        NotRefusedError
            Admission took it.
        """
        answer = await self.patch_pod(name, meta)
        if self.cluster.real:
            self.refused(answer)

    async def job(self, name: str, *, meta: Body | None = None, **spec: Any) -> Job:
        """Submit a job that the API server takes."""
        answer = (await self.submit(name, meta=meta, **spec)).ok()
        return Job(self.cluster.system, self.namespace, name, answer.body["metadata"]["uid"])

    async def submit(
        self, name: str, *, meta: Body | None = None, partition: str = "", **fields: Any
    ) -> Answer:
        """Submit a job that the API server may refuse; see `System.submit`."""
        partition = partition or self.cluster.partition
        namespace, submit = self.namespace, self.cluster.system.submit
        return await submit(
            name, partition, namespace=namespace, metadata=meta, by=self.api, **fields
        )

    def resource_path(self, plural: str, name: str = "") -> str:
        """Path of a claim or a template of claims in its namespace."""
        path = f"{CLAIMS}/namespaces/{self.namespace}/{plural}"
        return f"{path}/{name}" if name else path

    async def claiming_pod(self, name: str, **claim: Any) -> Body:
        """Create a Pod with a claim, and return it; see `workload`."""
        bodies = workload(name, f"{self.cluster.partition}.gpu.partita.dev", **claim)
        (await self.api.post(self.resource_path("resourceclaimtemplates"), bodies[0])).ok()
        answer = (await self.api.post(self.path("pods"), bodies[1])).ok()
        self.cluster.history.forged.add(answer.body["metadata"]["uid"])
        return dict(answer.body)

    async def claim_of(self, name: str) -> Body:
        """Wait until a Pod has a claim that is allocated, and return the claim."""
        return await self.cluster.allocated_claim(self.namespace, name)

    async def runs(self, name: str, **spec: Any) -> Job:
        """Submit a small job, and wait until it runs."""
        job = await self.job(name, gpuMemory="4Gi", sim=LONG, **spec)
        await job.runs()
        return job

    def refused(self, answer: Answer, *statuses: int) -> None:
        """Fail unless the API server refused a request.

        Raises
        ------
        NotRefusedError
            It did not.
        """
        if answer.status not in (statuses or (403,)):
            raise NotRefusedError(
                f"answered with {answer.status}: {json.dumps(answer.body)[:1000]}"
            )
