"""A local cluster of the embedded API server, simulated nodes and the real operator."""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from partita.cli.cluster.install import ensure_namespace, install_crds
from partita.cli.connection import open_cluster
from partita.cli.terminal import UserError
from partita.kube.client import Kube
from partita_testcluster.apiserver.server import EmbeddedAPIServer
from partita_testcluster.nodes import NodeSpec, run_nodes

__all__ = ["Sandbox", "sandbox"]

_NAMESPACE: Final = "partita-system"
_SERVER_NAMESPACE: Final = "partita-servers"
"""The namespaces of `manifests/base`."""
_STOP_WITHIN: Final = 5.0
"""Seconds between SIGTERM and SIGKILL for the operator."""


@dataclass(slots=True)
class Sandbox:
    """A cluster that exists until its context ends."""

    kube: Kube
    kubeconfig: Path
    log: Path
    """The operator's log."""
    operator: asyncio.subprocess.Process
    nodes: asyncio.Task[None]

    def check(self) -> None:
        """Check that all parts of the cluster are running.

        Raises
        ------
        UserError
            A part has ended; the message has the path of the operator's log.
        """
        if self.operator.returncode is not None:
            raise UserError(
                f"the operator has ended with exit code {self.operator.returncode}; "
                f"see the end of {self.log}"
            )
        if self.nodes.done():
            self.nodes.result()
            raise UserError(f"the simulated nodes have ended; see {self.log}")


@asynccontextmanager
async def sandbox(
    folder: Path, nodes: Sequence[NodeSpec], *, speed: float
) -> AsyncIterator[Sandbox]:
    """Start a cluster, and end its processes at the end of the context in any case.

    Parameters
    ----------
    folder
        Folder for the kubeconfig and the operator's log.
    nodes
        The simulated machines.
    speed
        Simulated seconds in one second.
    """
    kubeconfig, log = folder / "kubeconfig", folder / "operator.log"
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(EmbeddedAPIServer())
        kubeconfig.write_text(yaml.safe_dump(server.kubeconfig()), encoding="utf-8")
        kube = await stack.enter_async_context(open_cluster(str(kubeconfig)))
        await install_crds(kube)
        for namespace in (_NAMESPACE, _SERVER_NAMESPACE):
            await ensure_namespace(kube, namespace)
        operator = await stack.enter_async_context(_operator(kubeconfig, log))
        stop, started = asyncio.Event(), asyncio.Event()
        running = asyncio.create_task(
            run_nodes(kubeconfig, nodes=nodes, stop=stop, speed=speed, started=started)
        )
        stack.push_async_callback(_finish, running, stop)
        waiting = asyncio.create_task(started.wait())
        await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        box = Sandbox(kube, kubeconfig, log, operator, running)
        box.check()
        yield box


async def _finish(nodes: asyncio.Task[None], stop: asyncio.Event) -> None:
    stop.set()
    await asyncio.wait({nodes})


@asynccontextmanager
async def _operator(kubeconfig: Path, log: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    command = [sys.executable, "-m", "partita", "run", "--namespace", _NAMESPACE]
    command += ["--server-namespace", _SERVER_NAMESPACE]
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *command,
            "--kubeconfig",
            str(kubeconfig),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # keeps Ctrl-C from the operator, which ends below
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(_STOP_WITHIN):
                await process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
