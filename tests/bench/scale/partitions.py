"""What the benchmarks on a real API server stand on: control plane, operator, partitions."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from typing_extensions import override

from apiserver.controlplane import ControlPlane
from bench.scale.client import Client, RefusedError
from partita.constants import GROUP, VERSION
from partita.models import crd

__all__ = [
    "PARTITIONS_PATH",
    "READY_SECONDS",
    "PlaneWithoutCollector",
    "gpus_ready",
    "install",
    "jobs_path",
    "make_namespace",
    "make_partitions",
    "operator_command",
]

Json = dict[str, Any]

_GROUP = f"/apis/{GROUP}/{VERSION}"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_NAMESPACES = "/api/v1/namespaces"
_SYSTEM = "partita-system"
PARTITIONS_PATH = f"{_GROUP}/gpupartitions"
READY_SECONDS = 60


class PlaneWithoutCollector(ControlPlane):
    """Without garbage collection, as Kueue's benchmark runs: envtest has no controllers."""

    @override
    def controller_flags(self) -> list[str]:
        return ["--controllers=namespace-controller"]


def operator_command(program: Iterable[str], kubeconfig: Path, *options: str) -> list[str]:
    """Return how the operator is started, by the module and arguments that run it."""
    path = f"PYTHONPATH={os.pathsep.join(sys.path)}"
    usual = ["--kubeconfig", str(kubeconfig), "--identity", "bench", "--image", "bench"]
    return ["/usr/bin/env", path, sys.executable, "-m", *program, "run", *usual, *options]


async def install(api: Client) -> None:
    """Make the CRDs and the operator's namespace; wait until our kinds are served."""
    for definition in crd.crds():
        await api.post(_CRDS, definition)
    await make_namespace(api, _SYSTEM)
    async with asyncio.timeout(READY_SECONDS):
        for definition in crd.crds():
            while not await _served(api, definition["spec"]["names"]["plural"]):
                await asyncio.sleep(0.1)


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
    await api.post(_NAMESPACES, body)


def jobs_path(namespace: str = "") -> str:
    """Return where the jobs are, of one namespace or of all."""
    return f"{_GROUP}/{f'namespaces/{namespace}/' if namespace else ''}sharedgpujobs"


async def make_partitions(api: Client, bodies: Iterable[Json]) -> None:
    """Make partitions and wait until each has its GPUs."""
    wanted = 0
    for body in bodies:
        await api.post(PARTITIONS_PATH, body)
        wanted += body["spec"]["gpus"]
    async with asyncio.timeout(READY_SECONDS):
        while await gpus_ready(api) < wanted:
            await asyncio.sleep(0.1)


async def gpus_ready(api: Client) -> int:
    """Return how many GPUs may take jobs, by the statuses of all partitions."""
    listed = await api.get(PARTITIONS_PATH)
    return sum((item.get("status") or {}).get("gpus", 0) for item in listed["items"])
