"""The state that all parts of the simulation share."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import structlog

from partita.kube.errors import KubernetesError
from partita_testcluster.nodes.api import APIServer
from partita_testcluster.nodes.claims import KnownClaims
from partita_testcluster.nodes.node import Clock, Machine

if TYPE_CHECKING:
    from partita_testcluster.nodes.simulated_agent import SimulatedAgent

__all__ = ["Changes", "SimulatedCluster"]

log = structlog.get_logger(__name__)

Body = dict[str, Any]


class Changes:
    """Wakes all who wait for the next change."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    def notify(self) -> None:
        """Wake all who wait."""
        self._next.set()
        self._next = asyncio.Event()

    async def wait(self) -> None:
        """Wait for the next change."""
        await self._next.wait()


@dataclass(slots=True)
class SimulatedCluster:
    """The shared state of all parts of the simulation.

    Parameters
    ----------
    api
        The API server.
    clock
        Virtual time.
    machines
        The machines by name.
    tasks
        Task group of the simulation.
    servers
        All GPUServers by name, as in the API.
    claims
        All ResourceClaims.
    agents
        Active agents by name of their GPUServer.
    changes
        Notified of each change of a GPUServer, a claim or an agent.
    """

    api: APIServer
    clock: Clock
    machines: Mapping[str, Machine]
    tasks: asyncio.TaskGroup
    servers: dict[str, Body] = field(default_factory=dict)
    claims: KnownClaims = field(default_factory=KnownClaims)
    agents: dict[str, "SimulatedAgent"] = field(default_factory=dict)
    changes: Changes = field(default_factory=Changes)

    def uuid(self, server: str) -> str:
        """Return the UUID of the last GPU of a GPUServer; empty if it had none."""
        return str((self.servers.get(server, {}).get("status") or {}).get("uuid", ""))

    def agents_on(self, node: str) -> list["SimulatedAgent"]:
        """Return the agents that run on a node."""
        return [agent for agent in self.agents.values() if agent.node == node]

    async def write(self, method: str, path: str, body: Body) -> bool:
        """Call the API about a Pod; return whether the call was accepted.

        A rejected call usually means that the Pod was deleted, which the watch reports.
        """
        try:
            await self.api.call(method, path, body)
        except KubernetesError as error:
            log.info("refused", method=method, path=path, error=str(error))
            return False
        return True
