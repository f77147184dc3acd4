"""Partita with SharedGPUJobs, and with batch/v1 Jobs whose Pods have claims.

The operator runs with the rights and behind the admission policies of `manifests/base`. Its agents
are simulated: they read the objects of each Pod, and report no usage.
"""

from __future__ import annotations

import json
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from typing_extensions import override

from apiserver.build import assets
from apiserver.processes import ServerProcess
from apiserver.rights import BASE, install_rights
from bench.claims.pods import make_template
from bench.peers.plane import PeersPlane
from bench.peers.subject import BatchJobs, Subject
from bench.scale.client import Client
from bench.scale.partitions import (
    READY_SECONDS,
    install,
    jobs_path,
    make_partitions,
    operator_command,
)
from bench.scale.shape import CLASSES, JobClass, job, partition
from partita.constants import ALLOCATION_GATE

__all__ = ["ClaimJobs", "SharedJobs"]

Json = dict[str, Any]

POLICIES = ("admission", "claims-admission")
SERVERS = "partita-servers"
"""The only namespace in which the policies let the operator make server Pods."""


class _Partita:
    component = "operator"

    async def install(self, plane: PeersPlane, api: Client, stack: ExitStack) -> int:
        """Install CRDs, rights and policies, and start the operator."""
        await install(api)
        kubeconfig = _grant(plane)
        log = plane.kubeconfig.with_name("operator.log")
        command = operator_command(["partita"], kubeconfig, f"--server-namespace={SERVERS}")
        operator = ServerProcess(command, log=log)
        stack.callback(operator.stop)
        operator.start(lambda: '"ready"' in log.read_text(), seconds=READY_SECONDS)
        assert operator.pid is not None
        return operator.pid

    async def prepare(self, api: Client, names: list[str]) -> None:
        """Make the partitions, and wait until they have their GPUs."""
        await make_partitions(api, map(partition, names))


def _grant(plane: PeersPlane) -> Path:
    """Install the operator's rights and the policies; return the operator's kubeconfig."""
    kubectl = assets() / "kubectl"
    install_rights(kubectl, plane.kubeconfig)
    policies = [f"--filename={BASE / name}.yaml" for name in POLICIES]
    command = [kubectl, f"--kubeconfig={plane.kubeconfig}", "apply", *policies]
    subprocess.run(command, check=True, capture_output=True)
    kubeconfig = plane.kubeconfig.with_name("operator-kubeconfig")
    account = plane.tokens["partita-operator"]
    kubeconfig.write_text(json.dumps(plane.kubeconfig_of(account)))
    return kubeconfig


class SharedJobs(_Partita, Subject):
    """SharedGPUJobs."""

    name = "Partita, SharedGPUJobs"

    @override
    def path(self, namespace: str = "") -> str:
        return jobs_path(namespace)

    @override
    def job(self, name: str, namespace: str, kind: JobClass) -> Json:
        return job(name, namespace, kind)

    @override
    def ended(self, job: Json) -> bool | None:
        status = job.get("status") or {}
        return {"Succeeded": True, "Failed": False}.get(status.get("phase", ""))


class ClaimJobs(BatchJobs, _Partita, Subject):
    """batch/v1 Jobs whose Pods wait for their claims behind the gate."""

    name = "Partita, Jobs with claims"

    @override
    async def prepare(self, api: Client, names: list[str]) -> None:
        await super().prepare(api, names)
        for one in CLASSES:
            body = {"metadata": {"name": one.name}, "value": one.priority}
            await api.post("/apis/scheduling.k8s.io/v1/priorityclasses", body)
            for name in names:
                await make_template(api, name, name, f"{one.units}Gi", one.name)

    @override
    def job(self, name: str, namespace: str, kind: JobClass) -> Json:
        return self.batch_job(
            name,
            kind,
            {},
            {"claims": [{"name": "gpu"}]},
            priorityClassName=kind.name,
            resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": kind.name}],
            schedulingGates=[{"name": ALLOCATION_GATE}],
        )
