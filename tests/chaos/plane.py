"""A control plane whose parts are killed and started again, and a second API server that looks on.

The observer stands on the same etcd and is never killed. It has no watch cache, so its watches
reach back to any version that etcd has; and nothing is compacted. So a recorder that was cut off
while etcd was away sees everything that happened, version by version.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import aiohttp
from typing_extensions import override

from apiserver.controlplane import CONTROLLERS, ControlPlane
from support.api import Api
from support.clusters import ApiServer
from support.history import GROUP_PATH
from support.polling import TIMEOUT

__all__ = ["ChaosPlane", "answers"]


POD_COLLECTOR = "pod-garbage-collector-controller"
"""Ends deletions that a kill of the API server cut short between their two writes, as in every
cluster (k8s.io/kubernetes, pkg/controller/podgc, `gcUnscheduledTerminating`)."""


class ChaosPlane(ControlPlane):
    """A control plane to be killed.

    Attributes
    ----------
    observer
        The API server that is not killed.
    """

    observer: ApiServer

    @override
    def _start(self, folder: Path) -> None:
        super()._start(folder)
        port = self._run_on_a_port(
            "kube-apiserver",
            *self._api_server,
            "--watch-cache=false",
            "--audit-log-path=",
            certificate=self.certificate,
        )
        self.observer = replace(ApiServer.of(self), url=f"https://127.0.0.1:{port}")

    @override
    def api_server_flags(self) -> list[str]:
        return [*super().api_server_flags(), "--etcd-compaction-interval=0"]

    @override
    def controller_flags(self) -> list[str]:
        return [f"--controllers={','.join((*CONTROLLERS, POD_COLLECTOR))}"]

    async def kill(self, name: str, away: float) -> None:
        """Kill a server and start it again after so many seconds; return when all is served."""
        server = self.server(name)
        server.stop(grace=0)
        await asyncio.sleep(away)
        server.launch()  # from the thread that outlives it, see `ServerProcess`
        async with asyncio.timeout(TIMEOUT):
            for api_server in (ApiServer.of(self), self.observer):
                async with api_server.session() as session:
                    while not await answers(api_server.api(session)):
                        await asyncio.sleep(0.05)


async def answers(api: Api) -> bool:
    """Tell whether an API server serves Partita's kinds."""
    try:
        return (await api.get(f"{GROUP_PATH}/gpupartitions", limit=1)).status == 200
    except (aiohttp.ClientError, OSError):
        return False
