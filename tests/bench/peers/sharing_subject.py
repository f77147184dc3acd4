"""What `sharing` compares: who gives fractions of GPUs to Pods, and how it is asked."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

from bench.peers.kubelet import BoundNodes
from bench.peers.plane import PeersPlane, Throttles
from bench.peers.sharing_demand import GPU_MEMORY, Share
from bench.scale.client import Client
from bench.scale.shape import RUN_SECONDS

__all__ = ["NAMESPACE", "PODS", "Sharer", "SharingNodes", "pod", "resources"]

Json = dict[str, Any]

NAMESPACE = "crowd"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
LASTS_SECONDS = "3600"
"""How long each Pod runs: longer than what is measured."""
CPU_OF_GPU = 16
MEMORY_OF_GPU = 64
"""CPUs, and GiB of main memory, that Pods ask for with a whole GPU."""


class SharingNodes(BoundNodes):
    """Nodes with the GPUs that are shared."""

    memory = f"{GPU_MEMORY}Gi"


class Sharer(Protocol):
    """One way to share GPUs.

    Attributes
    ----------
    name
        As the report calls it.
    peer
        Whether it is not Partita.
    nodes
        Simulate its nodes.
    """

    name: str
    peer: bool
    nodes: type[SharingNodes] = SharingNodes

    def plane(self, assets: Path, throttles: Throttles) -> PeersPlane:
        """Return the control plane that it wants."""
        return PeersPlane(assets, throttles)

    async def install(
        self, plane: PeersPlane, api: Client, throttles: Throttles, stack: ExitStack
    ) -> dict[str, int]:
        """Start its processes until the stack is closed.

        There are no nodes yet.

        Returns
        -------
        dict[str, int]
            The ids of all processes that have a part in it, by name.
        """

    async def prepare(self, api: Client, gpus: Mapping[str, int]) -> None:
        """Make so many GPUs of each node known, and what Pods refer to; wait until it is settled."""

    def submission(self, name: str, percent: int) -> tuple[str, Json]:
        """Return where to create what, for a Pod with so many percent of a GPU."""

    async def shares(self, api: Client) -> dict[str, Share]:
        """Return what each Pod was given, by the name that it was submitted under."""


def resources(percent: int) -> Json:
    """Return what a container asks of its node's CPU and memory."""
    return {
        "cpu": f"{CPU_OF_GPU * 1000 * percent // 100}m",
        "memory": f"{MEMORY_OF_GPU * 1024 * percent // 100}Mi",
    }


def pod(name: str, percent: int, container: Json, **spec: Any) -> Json:
    """Return a Pod with more of its container's resources and of its spec."""
    given = {**container, "requests": {**resources(percent), **container.get("requests", {})}}
    return {
        "metadata": {"name": name, "annotations": {RUN_SECONDS: LASTS_SECONDS}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "bench", "resources": given}],
            **spec,
        },
    }
