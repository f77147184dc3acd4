"""Pods whose containers the driver limits: the operator, kubelet and runtime of a test."""

from __future__ import annotations

import contextlib
import subprocess
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from agent.claims import Claim
from agent.node import Node, Run
from gpu.containers import Container, create_container
from gpu.toolkit import LIMIT, REQUEST, HookError
from partita.pods.probe_pod import probe_name

__all__ = ["PROBE_LIMIT", "LimitedJob", "limited_claim", "limited_job", "probe"]

PROBE_LIMIT = 513
"""MiB."""


@dataclass
class LimitedJob:
    """A job or a claim with one running container."""

    job: Run
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


def environment(values: dict[str, str]) -> list[dict[str, str]]:
    """Return variables as in a container's spec."""
    return [{"name": name, "value": value} for name, value in values.items()]


def body(node: Node, name: str, request: int, limit: int, **meta: Any) -> dict[str, Any]:
    """Return a Pod whose container should have limits, MiB."""
    env = environment({REQUEST: str(request), LIMIT: str(limit)})
    resources = {"limits": {f"gpu.partita.dev/{node.uuid[4:12]}": "1"}}
    container = {"name": "main", "image": "example.org/image:1", "env": env, "resources": resources}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": node.namespace, **meta},
        "spec": {"containers": [container]},
    }


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
    path = f"/api/v1/namespaces/{node.namespace}/pods/{pod['metadata']['name']}/status"
    container = uuid4().hex
    group = f"kubepods/burstable/pod{pod['metadata']['uid']}/{container}"
    env = {e["name"]: e["value"] for e in pod["spec"]["containers"][0].get("env", ())}
    env |= devices
    more = {
        "NVIDIA_VISIBLE_DEVICES": node.uuid,
        "CUDA_MPS_PIPE_DIRECTORY": str(node.pipes),
    }
    base = {"name": "main", "image": "", "imageID": "", "ready": False, "restartCount": 0}
    try:
        made = create_container(node.gpus, group, **(env | more))
    except HookError as error:
        waiting = {"reason": "CreateContainerError", "message": str(error)}
        status = {**base, "state": {"waiting": waiting}}
        (await node.api.patch(path, {"status": {"containerStatuses": [status]}})).ok()
        raise
    running = {"startedAt": "2026-01-01T00:00:00Z"}
    status = {**base, "containerID": f"containerd://{container}", "state": {"running": running}}
    (await node.api.patch(path, {"status": {"containerStatuses": [status]}})).ok()
    return made


def limit_hook(server: dict[str, Any]) -> str:
    """Return what the agent says about the toolkit's hook."""
    capabilities = (server.get("status") or {}).get("capabilities") or {}
    return str(capabilities.get("limitHook", ""))


async def probe(node: Node, request: int = PROBE_LIMIT, limit: int = PROBE_LIMIT) -> None:
    """Run a probe Pod, as the operator does while the agent asks for one."""
    server = await node.until(lambda b: limit_hook(b) == "Unknown")
    owner = {
        "apiVersion": "partita.dev/v1alpha1",
        "kind": "GPUServer",
        "name": node.name,
        "uid": server["metadata"]["uid"],
        "controller": True,
    }
    made = body(node, probe_name(node.name), request, limit, ownerReferences=[owner])
    pods = f"/api/v1/namespaces/{node.namespace}/pods"
    pod = dict((await node.api.post(pods, made)).ok().body)
    container: Container | None = None
    with contextlib.suppress(HookError):
        container = await start_container(node, pod)
    await node.until(lambda b: limit_hook(b) != "Unknown")
    if container is not None:
        container.remove()
    await node.api.delete(f"{pods}/{pod['metadata']['name']}")


async def limited_job(
    node: Node, name: str, memory: int, limit: int | None = None, **wrong: str
) -> LimitedJob:
    """Allocate a job and start the container of its Pod.

    Parameters
    ----------
    memory, limit
        MiB.
    wrong
        Variables that the runtime sees instead of those of the Pod.
    """
    env = environment({REQUEST: str(memory), LIMIT: str(limit or memory)})
    job = await node.allocate(name, memory, container={"env": env})
    pod = job.pod
    if wrong:
        spec = {"containers": [{**pod["spec"]["containers"][0], "env": environment(wrong)}]}
        pod = {**pod, "spec": spec}
    return LimitedJob(job, await start_container(node, pod))


async def limited_claim(claim: Claim) -> LimitedJob:
    """Start the container of the Pod of a prepared claim."""
    return LimitedJob(claim, await start_container(claim.node, claim.pod, **claim.environment))
