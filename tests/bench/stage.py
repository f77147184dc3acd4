"""What the benchmarks on a real API server stand on: control plane, operator, partitions."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from typing_extensions import override

from apiserver.processes import ServerProcess
from apiserver.rights import BASE, install_rights
from bench.client import READY_SECONDS, Client, Json, RefusedError
from kube_scheduler.plane import SchedulingControlPlane
from partita.constants import GROUP, VERSION
from partita.models import crd

__all__ = [
    "PARTITIONS_PATH",
    "RECOMMENDED",
    "UNLIMITED",
    "Plane",
    "Throttles",
    "install_kinds",
    "install_operator",
    "jobs_path",
    "make_namespace",
    "make_partitions",
    "start",
]


_GROUP = f"/apis/{GROUP}/{VERSION}"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PARTITIONS_PATH = f"{_GROUP}/gpupartitions"
SET_UP_SECONDS = 600
_POLICIES = ("admission", "claims-admission")
_SERVERS = "partita-servers"
"""The only namespace in which the policies let the operator make server Pods."""


@dataclass(frozen=True, slots=True)
class Throttles:
    """Requests a second, and at once, that clients of the API server allow themselves.

    Negative numbers are no limit. Each controller of kube-controller-manager has a limit of its own.
    """

    name: str
    controllers: tuple[int, int]
    scheduler: tuple[int, int]
    kueue: tuple[int, int]
    hami: tuple[int, int]


RECOMMENDED = Throttles("recommended throttles", (100, 100), (100, 100), (300, 500), (100, 100))
"""For large clusters.

Of kube-controller-manager and kube-scheduler: what Kubernetes' SIG Scalability validates clusters of
5,000 nodes with (kubernetes/community, sig-scalability, `CONTROLLER_MANAGER_TEST_ARGS` and
`SCHEDULER_TEST_ARGS`); their defaults are 20 and 50. Of Kueue: its release's own since 0.19, raised
from 50 for large clusters (https://github.com/kubernetes-sigs/kueue/issues/12411). Of HAMi:
those of kube-scheduler, since it recommends none, and with its default of 5 a Pod takes 6 s.
"""
UNLIMITED = Throttles("no throttles", *[(-1, 1)] * 4)
"""Which Kueue's maintainers prefer, as the API server's Priority and Fairness limits them (the same
issue)."""


class Plane(SchedulingControlPlane):
    """etcd, kube-apiserver, kube-controller-manager and kube-scheduler.

    Without garbage collection, as Kueue's benchmark runs: nothing is deleted here.
    """

    controllers = "namespace-controller,job-controller,resourceclaim-controller"

    def __init__(self, assets: Path, throttles: Throttles) -> None:
        super().__init__(assets)
        self.kubectl = assets / "kubectl"
        self.throttles = throttles

    @override
    def api_server_flags(self) -> list[str]:
        # Nobody's requests are noted: only Partita's would be.
        return [*super().api_server_flags(), "--audit-policy-file=", "--audit-log-path="]

    @override
    def controller_flags(self) -> list[str]:
        often, at_once = self.throttles.controllers
        limits = [f"--kube-api-qps={often}", f"--kube-api-burst={at_once}"]
        return [f"--controllers={self.controllers}", *limits]

    @override
    def scheduler_flags(self) -> list[str]:
        # It has no flags for its limits any more.
        configuration = self.kubeconfig.with_name("kube-scheduler-configuration")
        kubeconfig = self.kubeconfig.with_name("kube-scheduler-kubeconfig")
        often, at_once = self.throttles.scheduler
        settings = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {"kubeconfig": str(kubeconfig), "qps": often, "burst": at_once},
            **self.scheduler_settings(),
        }
        configuration.write_text(json.dumps(settings))
        return [f"--config={configuration}"]

    def scheduler_settings(self) -> Json:
        """Return what more a subject wants in kube-scheduler's configuration."""
        return {}

    def process_ids(self) -> dict[str, int]:
        """Return the ids of its processes by name."""
        names = ["kube-apiserver", "etcd", "kube-controller-manager"]
        names += ["kube-scheduler"] if self.scheduler else []
        pids = {name: self.server(name).pid for name in names}
        return {name: pid for name, pid in pids.items() if pid is not None}


def start(command: Iterable[str | Path], log: Path, said: str, stack: ExitStack) -> int:
    """Run a program until the stack is closed; return its id when it has said something."""
    process = ServerProcess([*command], log=log)
    stack.callback(process.stop)
    process.start(lambda: said in log.read_text(), seconds=READY_SECONDS)
    assert process.pid is not None
    return process.pid


async def install_kinds(api: Client) -> None:
    """Install the CRDs; return when they are served."""
    for definition in crd.crds():
        await api.post(_CRDS, definition)
    async with asyncio.timeout(READY_SECONDS):
        for definition in crd.crds():
            while not await _served(api, definition["spec"]["names"]["plural"]):
                await asyncio.sleep(0.1)


async def install_operator(
    plane: Plane, api: Client, stack: ExitStack, module: str = "partita"
) -> int:
    """Install CRDs, rights and admission policies, and start the operator behind them.

    Parameters
    ----------
    module
        What runs it.

    Returns
    -------
    int
        The id of its process.
    """
    await install_kinds(api)
    install_rights(plane.kubectl, plane.kubeconfig)
    policies = [f"--filename={BASE / name}.yaml" for name in _POLICIES]
    command = [plane.kubectl, f"--kubeconfig={plane.kubeconfig}", "apply", *policies]
    await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True)
    kubeconfig = plane.kubeconfig.with_name("operator-kubeconfig")
    kubeconfig.write_text(json.dumps(plane.kubeconfig_of(plane.tokens["partita-operator"])))
    operator = [
        *("/usr/bin/env", f"PYTHONPATH={os.pathsep.join(sys.path)}", sys.executable, "-m", module),
        *("run", "--kubeconfig", str(kubeconfig), "--identity", "bench", "--image", "bench"),
        f"--server-namespace={_SERVERS}",
    ]
    return start(operator, plane.kubeconfig.with_name("operator.log"), '"ready"', stack)


async def _served(api: Client, plural: str) -> bool:
    try:
        await api.get(f"{_GROUP}/{plural}")
    except RefusedError as error:
        # Not yet; or its storage is made anew, as a moment after its definition.
        if error.status not in {404, 429}:
            raise
        return False
    return True


async def make_namespace(api: Client, name: str) -> None:
    """Make a namespace."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    await api.post("/api/v1/namespaces", body)


def jobs_path(namespace: str = "") -> str:
    """Return where the jobs are, of one namespace or of all."""
    return f"{_GROUP}/{f'namespaces/{namespace}/' if namespace else ''}sharedgpujobs"


async def make_partitions(api: Client, bodies: Iterable[Json]) -> None:
    """Make partitions and wait until each has its GPUs."""
    wanted = 0
    for body in bodies:
        await api.post(PARTITIONS_PATH, body)
        wanted += body["spec"]["gpus"]
    async with asyncio.timeout(SET_UP_SECONDS):
        while await _gpus_ready(api) < wanted:
            await asyncio.sleep(0.5)


async def _gpus_ready(api: Client) -> int:
    """Return how many GPUs may take jobs, by the statuses of all partitions."""
    listed = await api.get(PARTITIONS_PATH)
    return sum((item.get("status") or {}).get("gpus", 0) for item in listed["items"])
