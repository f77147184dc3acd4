"""Pods whose containers the driver limits: the operator, kubelet and runtime of a test."""

from __future__ import annotations

import contextlib
import subprocess
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from agent.claims import Claim, Driver, create_claim, prepare_claim, reserve
from agent.node import Node
from gpu.containers import Container, create_container
from gpu.toolkit import HookError
from partita.pods.probe_pod import probe_claim_name, probe_name
from support.builders import owner

__all__ = ["LimitedJob", "limited_claim", "limited_job", "probe"]

CONTEXT = 512
"""MiB that a container gets for the context of its process."""


@dataclass
class LimitedJob:
    """A job or a claim with one running container."""

    job: Claim
    container: Container

    def run(self, *steps: str, **environment: str) -> subprocess.Popen[str]:
        """Start a program in the container."""
        program = self.container.run("wait:50", *steps, **environment)
        self.job.place(program)
        return program

    async def ends(self) -> None:
        """End the container; its cgroup goes without the driver being told."""
        self.container.remove()
        await self.job.ends()
        await self.job.release()


async def start_container(node: Node, pod: dict[str, Any], **devices: str) -> Container:
    """Start the Pod's container as kubelet and the runtime do, and report it.

    Parameters
    ----------
    devices
        Variables that its CDI devices set.

    Raises
    ------
    HookError
        The toolkit's hook failed; kubelet has reported that, too.
    """
    container = uuid4().hex
    group = f"kubepods/burstable/pod{pod['metadata']['uid']}/{container}"
    more = {"NVIDIA_VISIBLE_DEVICES": node.uuid, "CUDA_MPS_PIPE_DIRECTORY": str(node.pipes)}
    try:
        made = create_container(node.gpus, group, **(devices | more))
    except HookError as error:
        waiting = {"reason": "CreateContainerError", "message": str(error)}
        await node.report_container(pod, {"state": {"waiting": waiting}})
        raise
    running = {"startedAt": "2026-01-01T00:00:00Z"}
    status = {"containerID": f"containerd://{container}", "state": {"running": running}}
    await node.report_container(pod, status)
    return made


def limit_hook(server: dict[str, Any]) -> str:
    """Return what the agent says about the toolkit's hook."""
    capabilities = (server.get("status") or {}).get("capabilities") or {}
    return str(capabilities.get("limitHook", ""))


async def probe(node: Node) -> None:
    """Run a probe Pod, as the operator does while the agent asks for one."""
    server = await node.until(lambda b: limit_hook(b) == "Unknown")
    owners = [owner("GPUServer", node.name, server["metadata"]["uid"])]
    name, claims = probe_name(node.name), [{"name": "partita-gpu"}]
    container = {"name": "probe", "image": "example.org/image:1", "resources": {"claims": claims}}
    entry = {"name": "partita-gpu", "resourceClaimName": probe_claim_name(node.name)}
    made = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": node.namespace, "ownerReferences": owners},
        "spec": {"containers": [container], "resourceClaims": [entry]},
    }
    pods = f"/api/v1/namespaces/{node.namespace}/pods"
    pod = dict((await node.api.post(pods, made)).ok().body)
    claim = await create_claim(node, probe_claim_name(node.name), pod)
    await reserve(claim, {})
    assert (await Driver(node.kubelet.folder).prepare(node.name, claim)).error == ""
    started: Container | None = None
    with contextlib.suppress(HookError):
        started = await start_container(node, pod, **claim.environment)
    await node.until(lambda b: limit_hook(b) != "Unknown")
    if started is not None:
        started.remove()
    await Driver(node.kubelet.folder).unprepare(node.name, claim)
    await node.api.delete(f"{pods}/{name}")
    await node.api.delete(claim.path)


async def limited_job(
    node: Node, name: str, memory: int, limit: int | None = None, **wrong: str
) -> LimitedJob:
    """Allocate a job and start the container of its Pod.

    Parameters
    ----------
    memory, limit
        MiB that its container may use, with its context.
    wrong
        Variables that the runtime sees instead of those of the claim.
    """
    entry = {"memoryLimit": f"{limit - CONTEXT}Mi", "clients": 2} if limit else {}
    job = await prepare_claim(node, name, memory - CONTEXT, job=True, entry=entry)
    return LimitedJob(job, await start_container(node, job.pod, **(wrong or job.environment)))


async def limited_claim(claim: Claim) -> LimitedJob:
    """Start the container of the Pod of a prepared claim."""
    return LimitedJob(claim, await start_container(claim.node, claim.pod, **claim.environment))
