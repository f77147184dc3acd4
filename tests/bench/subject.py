"""What is compared: who gives GPUs to jobs or Pods, how it is set up, and how it is asked."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

from apiserver.build import assets
from bench.client import Client, Json
from bench.nodes import BoundNodes, Nodes
from bench.stage import Plane, Throttles

if TYPE_CHECKING:
    from bench.load import Work

__all__ = ["Subject"]


class Subject:
    """One way to share GPUs.

    Attributes
    ----------
    name
        As the report calls it.
    peer
        Whether it is not Partita.
    nodes
        Simulate its nodes.
    watched
        Where the jobs are whose end is waited for; without, it is waited until all Pods are bound.
    """

    name: str
    peer = True
    nodes: type[Nodes] = BoundNodes
    watched = ""

    def plane(self, throttles: Throttles) -> Plane:
        """Return the control plane that it wants."""
        return Plane(assets(), throttles)

    async def install(self, _plane: Plane, _api: Client, _stack: ExitStack) -> dict[str, int]:
        """Start its own processes until the stack is closed; return their ids by name.

        There are no nodes yet.
        """
        return {}

    async def prepare(self, api: Client, namespaces: list[str], gpus: Mapping[str, int]) -> None:
        """Make what the work needs in these namespaces and on so many GPUs of each node.

        Returns when all is settled.
        """

    def request(self, work: Work) -> tuple[str, Json]:
        """Return where to create what."""
        raise NotImplementedError

    def ended(self, job: Json) -> bool | None:
        """Return whether a job has ended well or badly, None while it has not ended."""
        raise NotImplementedError

    def admitted(self, job: Json) -> float:
        """Return when a job got its GPU, by the clock, if it has no Pod."""
        raise NotImplementedError

    async def figures(self, _api: Client, _done: set[str]) -> dict[str, float]:
        """Return what it says of the work that is done, by a name that says what and in which unit."""
        return {}
