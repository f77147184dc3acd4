"""Everything that a run needs, started and ended: control plane, nodes, operators, record."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos.calls import call
from chaos.faults import LEASES, OWN, Faults, partition_spec
from chaos.operators import Operators
from chaos.plan import PARTITIONS, SPEED, JobPlan
from chaos.plane import ChaosPlane
from chaos.workloads import create_workloads
from support.api import Api
from support.clusters import ApiServer
from support.crds import install_kinds, prepare_namespace
from support.history import GROUP_PATH, PATHS, Body, History
from support.job import container
from support.operator_process import Forge
from support.polling import TIMEOUT

__all__ = ["ChaosCluster", "job_body", "running_cluster"]


TEAMS = ("red", "blue")
NODES, GPUS_PER_NODE = 4, 2
"""Eight GPUs; the partitions want six."""

_KINDS = ("gpupartitions", "gpuservers", "sharedgpujobs", "resourceclaims", "pods", "nodes")


@dataclass(eq=False)
class ChaosCluster:
    """What runs."""

    api: Api
    history: History
    operators: Operators
    faults: Faults
    plane: ChaosPlane
    folder: Path

    async def submit(self, job: JobPlan) -> None:
        """Submit a job."""
        path = f"{GROUP_PATH}/namespaces/{job.team}/sharedgpujobs"
        answer = await call(lambda: self.api.post(path, job_body(job)))
        if answer.status != 409:  # an earlier try of it took effect
            answer.ok()

    async def change(self, job: JobPlan, **spec: Any) -> None:
        """Change fields of a job's spec, if it is still there."""
        path = f"{GROUP_PATH}/namespaces/{job.team}/sharedgpujobs/{job.name}"
        await call(lambda: self.api.patch(path, {"spec": spec}))

    async def delete(self, job: JobPlan) -> None:
        """Delete a job."""
        path = f"{GROUP_PATH}/namespaces/{job.team}/sharedgpujobs/{job.name}"
        await call(lambda: self.api.delete(path))


def job_body(job: JobPlan) -> Body:
    """Write a job, with what its program is to do, and the end that is its right one."""
    does = {
        "sim.partita.dev/duration": f"{job.seconds * SPEED:g}s",
        "sim.partita.dev/gpu": "1",
        "chaos.partita.dev/end": job.end,
    }
    spec: Body = {"partition": job.partition, "priority": job.priority, "gpus": job.gpus}
    if job.memory is not None:
        spec["gpuMemory"] = f"{job.memory}Gi"
    if job.failures:
        does |= {"sim.partita.dev/exit-code": "1"}
        spec["retry"] = {"limit": job.failures - 1}
    if job.kind == "grows":
        does |= {"sim.partita.dev/memory": "5Gi"}
    if job.kind == "late":
        spec["activeDeadlineSeconds"] = 2
    tolerations = [{"key": OWN, "operator": "Exists"}]
    pod: Body = {"containers": [container()], "tolerations": tolerations}
    if job.stuck_by:
        spec["podStartTimeout"] = "1s"
        spec["retry"] = {"notStarted": {"limit": job.not_started - 1}}
    match job.stuck_by:
        case "NotScheduled":
            pod["schedulerName"] = "nobody"
        case "ErrImagePull":
            does |= {"sim.partita.dev/not-starting": job.stuck_by}
    template = {"metadata": {"annotations": does}, "spec": pod}
    return {
        "apiVersion": "partita.dev/v1alpha1",
        "kind": "SharedGPUJob",
        "metadata": {"name": job.name, "namespace": job.team},
        "spec": {**spec, "template": template},
    }


@contextlib.asynccontextmanager
async def running_cluster(plane: ChaosPlane, folder: Path) -> AsyncIterator[ChaosCluster]:
    """Run all of it while the block runs."""
    observer = plane.observer
    leases = {"leases": LEASES}
    async with contextlib.AsyncExitStack() as stack:
        session = await stack.enter_async_context(observer.session())
        api = observer.api(session)
        await install_kinds(api)
        for team in TEAMS:
            meta = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": team}}
            await api.post("/api/v1/namespaces", meta)
            await prepare_namespace(api, team)
        history = History(api, {kind: PATHS[kind] for kind in _KINDS} | leases)
        await stack.enter_async_context(history.recording())
        await stack.enter_async_context(_nodes(plane, folder))
        forge = stack.enter_context(Forge())
        operators = Operators(ApiServer.of(plane), forge, history, folder)
        await stack.enter_async_context(operators.keep("a", "b"))
        nodes = [f"sim-{number}" for number in range(NODES)]
        faults = Faults(history, api, plane, operators, nodes)
        await history.until(lambda: len(history.all("nodes")) == NODES, seconds=TIMEOUT)
        await faults.taint()
        for name in PARTITIONS:
            meta = {"name": name}
            body = {"apiVersion": "partita.dev/v1alpha1", "kind": "GPUPartition", "metadata": meta}
            (await api.post(PATHS["gpupartitions"], body | {"spec": partition_spec(name)})).ok()
        await history.until(
            lambda: all(_is_ready(body) for body in history.all("gpupartitions")),
            seconds=TIMEOUT,
            what=lambda: history.all("gpupartitions"),
        )
        await create_workloads(api)
        yield ChaosCluster(api, history, operators, faults, plane, folder)


def _is_ready(partition: Body) -> bool:
    conditions = (partition.get("status") or {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


@contextlib.asynccontextmanager
async def _nodes(plane: ChaosPlane, folder: Path) -> AsyncIterator[None]:
    """Simulate nodes, in a process of their own."""
    with (folder / "nodes.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "partita", "nodes", "--kubeconfig", str(plane.kubeconfig)),
            *("--nodes", str(NODES), "--gpus", str(GPUS_PER_NODE), "--speed", f"{SPEED:g}"),
            stdout=log,
            stderr=log,
        )
    try:
        yield
        if process.returncode is not None:
            raise RuntimeError(f"the nodes ended: {(folder / 'nodes.log').read_text()[-3000:]}")
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            await process.wait()
