"""What `sharing` compares: who gives fractions of GPUs to Pods, and where the Pods came to stand."""

from __future__ import annotations

import asyncio
import time

from typing_extensions import override

from bench.client import Client
from bench.nodes import BoundNodes
from bench.peers.demand import GPU_MEMORY, Share, demand, fewest_gpus, packed
from bench.subject import Subject

__all__ = ["GPUS_USED", "NOT_BOUND", "OVERFULL", "Sharer", "SharingNodes"]


NOT_BOUND, OVERFULL, GPUS_USED = "Pods not bound", "GPUs overfull", "GPUs used"
WRITTEN_SECONDS = 120
"""In which a subject must have written all shares."""


class SharingNodes(BoundNodes):
    """Nodes with the GPUs that are shared, and twice the room of Pods that fill them."""

    memory = f"{GPU_MEMORY}Gi"
    room = {"cpu": "256", "memory": "2Ti", "pods": "250"}  # noqa: RUF012


class Sharer(Subject):
    """One way to share GPUs between Pods."""

    nodes: type[SharingNodes] = SharingNodes
    pods = 0
    """How many ask for a share."""

    async def shares(self, api: Client) -> dict[str, Share]:
        """Return what each Pod was given, by the name that it was submitted under."""
        raise NotImplementedError

    @override
    async def figures(self, api: Client, done: set[str]) -> dict[str, float]:
        asked = demand(self.pods)
        until = time.time() + WRITTEN_SECONDS
        while True:
            found = await self.shares(api)
            shares = {name: found[name] for name in done if name in found}
            if len(shares) == len(done) or time.time() > until:
                break
            await asyncio.sleep(1)
        placed = packed(asked, shares)
        return {
            NOT_BOUND: len(asked) - len(done),
            "GPUs of a perfect packing": fewest_gpus(asked),
            GPUS_USED: placed.gpus,
            OVERFULL: placed.overfull,
            "Pods with a wrong share, or none": placed.wrong,
        }
