"""`partita agent mps` in a test, with the test in the place of the agent."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import structlog

from gpu.fake import FakeGPUs, uuid_of
from partita.agent.errors import MPSError
from partita.agent.file_lock import FileLock
from partita.agent.mps.control import MPSControl, ServerState
from partita.agent.mps.daemon import MPSDaemon
from partita.agent.mps.exchange import MPSConfig, MPSReport
from partita.agent.mps.protocol import control_client
from partita.agent.paths import Paths
from partita.agent.times import AgentTimes
from support.polling import TIMEOUT, until

__all__ = ["UUID", "MPSDaemonRun", "mps"]

UUID = uuid_of(0)


class MPSDaemonRun:
    """`partita agent mps` with the test in the place of the agent."""

    def __init__(self, gpus: FakeGPUs, logs: list[Any]) -> None:
        self.logs = logs
        self.reads = 0
        """How often the configuration was read."""
        self.gpus = gpus
        self.paths = Paths("gpus-0", gpus.folder / "run")
        self.lock = FileLock(self.paths.agent_lock)
        self.stop = asyncio.Event()
        self.times = AgentTimes(mps_poll=0.02, mps_first_pause=0.02, mps_ends_within=TIMEOUT)
        self.task: asyncio.Task[None] | None = None
        self.pipes = self.paths.pipes(UUID)
        self.protocol = 2

    @property
    def control(self) -> MPSControl:
        return control_client(self.protocol, self.pipes, asyncio.Lock(), TIMEOUT)

    def start(self) -> None:
        self.task = asyncio.create_task(MPSDaemon(self.paths, self.stop, self.times).run())

    def serve(self, **config: Any) -> None:
        """Start it beside an agent that has this configuration."""
        assert self.lock.acquire()
        self.configure(**config)
        self.start()

    async def up(self) -> int:
        """Start it beside an agent, and wait for its server; return the PID of that."""
        self.serve()
        return await self.active()

    def configure(self, *, agent: int = 0, **more: Any) -> None:
        """Write the configuration as the agent does."""
        config = MPSConfig(UUID, agent or os.getpid(), **more)
        config.write(self.paths.mps_config)

    async def read_again(self) -> None:
        """Wait until the configuration was read, and what follows from it was begun."""
        before = self.reads
        await until(lambda: self.reads >= before + 2)

    async def logged(self, event: str) -> Any:
        """Wait for an entry of the log."""
        return await until(
            lambda: next((e for e in self.logs if e["event"] == event), None), what=self.logs
        )

    async def report(self) -> MPSReport:
        """Wait for the report."""
        return await until(lambda: MPSReport.read(self.paths.mps_report))

    async def active(self, not_server: int = 0) -> int:
        """Wait for an ACTIVE server other than this one; return its PID."""

        async def found() -> int:
            with suppress(MPSError):
                for server in await self.control.servers():
                    state = await self.control.state(server)
                    if server != not_server and state is ServerState.ACTIVE:
                        return server
            return 0

        return int(await until(found))

    def pid(self) -> int:
        """PID of the control daemon."""
        return int(self._pid_file.read_text())

    def has_pid(self) -> bool:
        """Whether a control daemon has written its PID."""
        return self._pid_file.exists() and self._pid_file.read_text() != ""

    @property
    def _pid_file(self) -> Path:
        return self.pipes / "nvidia-cuda-mps-control.pid"

    def run(self, *steps: str, pipes: Path | None = None, **more: str) -> subprocess.Popen[str]:
        """Start a program."""
        where = {"CUDA_MPS_PIPE_DIRECTORY": str(pipes or self.pipes)}
        return self.gpus.run(*steps, **where, **more)


@pytest.fixture
async def mps(fake_gpus: FakeGPUs, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MPSDaemonRun]:
    """The MPS container, not started yet."""
    fake_gpus.start_driver()
    with structlog.testing.capture_logs() as logs:
        made = MPSDaemonRun(fake_gpus, logs)
        read = MPSConfig.read

        def counted(path: Path) -> MPSConfig | None:
            made.reads += 1
            return read(path)

        monkeypatch.setattr(MPSConfig, "read", counted)
        yield made
        made.stop.set()
        if made.task is not None:
            await asyncio.wait_for(made.task, TIMEOUT)
        made.lock.release()
