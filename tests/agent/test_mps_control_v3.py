"""The client of an MPS control daemon with protocol 3, against the fake daemon."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from gpu.fake import FakeGPUs, uuid_of
from partita.agent.errors import (
    MPSGarbledError,
    MPSGoneError,
    MPSRefusedError,
)
from partita.agent.mps.control import ServerState
from partita.agent.mps.control_v3 import MPSControlV3, parse_rows
from partita.agent.mps.namespaces import (
    CANARY,
    NamespaceLimits,
    daemon_configuration,
    namespace_directory,
    slot_namespace,
)
from support.polling import TIMEOUT, poll, until

GPU = uuid_of(0)
SLOT = slot_namespace(0)


class DaemonV3:
    """A control daemon with the agent's configuration, and its programs."""

    def __init__(self, gpus: FakeGPUs) -> None:
        self.gpus = gpus
        self.pipes = gpus.folder / "pipe"
        self.environment = {
            "CUDA_MPS_PIPE_DIRECTORY": str(self.pipes),
            "CUDA_MPS_LOG_DIRECTORY": str(gpus.folder / "log"),
            "CUDA_VISIBLE_DEVICES": GPU,
        }
        self.control = MPSControlV3(str(self.pipes), asyncio.Lock())

    def start(self, configuration: str) -> subprocess.Popen[str]:
        path = self.gpus.folder / "mps.toml"
        path.write_text(configuration)
        options = ("-f", "-p", "3", "-m", "-a", str(path))
        return self.gpus.start(self.gpus.built.control, *options, **self.environment)

    def run(self, *steps: str, namespace: str = SLOT, **more: str) -> subprocess.Popen[str]:
        """Start a program in a namespace."""
        directory = namespace_directory(self.pipes, namespace)
        where = {**self.environment, "CUDA_MPS_PIPE_DIRECTORY": str(directory)}
        return self.gpus.run(*steps, **(where | more))

    async def connected(self, *programs: subprocess.Popen[str]) -> int:
        """Wait until these programs, and no others, are clients; return the server."""
        (server,) = await self.control.servers()

        async def same() -> bool:
            return set(await self.control.clients(server)) == {p.pid for p in programs}

        await until(same)
        return server


@pytest.fixture
async def daemon(fake_gpus: FakeGPUs) -> DaemonV3:
    fake_gpus.install_driver("615.71.09")
    fake_gpus.start_driver()
    made = DaemonV3(fake_gpus)
    made.start(daemon_configuration(GPU, 2))

    async def serves() -> bool:
        return await made.control.servers() != []

    poll(namespace_directory(made.pipes, CANARY).joinpath("control").exists)
    await until(serves)
    return made


def ended(program: subprocess.Popen[str]) -> tuple[int, str]:
    _, said = program.communicate(timeout=TIMEOUT)
    return program.returncode, said


def test_lists_are_read_strictly():
    assert parse_rows("\n", 3) == []
    assert parse_rows("a,b,c\nd,e,f,g\n", 3) == [["a", "b", "c"], ["d", "e", "f", "g"]]
    for noise in ("a", "a,b", "NAME  UID", "a,b,c\nnoise"):
        with pytest.raises(MPSGarbledError):
            parse_rows(noise, 3)


async def test_the_server_is_listed_and_ends_with_the_daemon(daemon: DaemonV3):
    (server,) = await daemon.control.servers()
    assert await daemon.control.status(server) == (ServerState.ACTIVE, [])
    with pytest.raises(MPSRefusedError):
        await daemon.control.state(server + 1)
    await daemon.control.quit()

    async def gone() -> bool:
        try:
            await daemon.control.servers()
        except MPSGoneError:
            return True
        return False

    await until(gone)


async def test_an_unknown_status_is_not_healthy(daemon: DaemonV3):
    (server,) = await daemon.control.servers()
    daemon.gpus.mps(initialising=1)
    assert await daemon.control.state(server) is ServerState.INITIALIZING
    daemon.gpus.mps(garbage=1)
    with pytest.raises(MPSGarbledError):
        await daemon.control.servers()


async def test_every_namespace_is_closed_at_first_but_the_canarys(daemon: DaemonV3):
    limits = await daemon.control.limits()
    assert limits.keys() == {"default", CANARY, SLOT, slot_namespace(1)}
    assert limits["default"] == limits[SLOT] == limits[slot_namespace(1)] == ("1M", "1.00")
    assert "out of memory" in ended(daemon.run("alloc:10"))[1]
    assert "out of memory" in ended(daemon.run("alloc:10", namespace=""))[1]
    assert ended(daemon.run("alloc:10", namespace=CANARY))[0] == 0


async def test_a_client_is_terminated_alone(daemon: DaemonV3):
    await daemon.control.limit(SLOT, NamespaceLimits(memory=100, threads=25))
    victim = daemon.run("alloc:10", "forever")
    neighbour = daemon.run("alloc:10", "forever", namespace=CANARY)
    server = await daemon.connected(victim, neighbour)
    assert await daemon.control.terminate(server, victim.pid) == ""
    assert "terminated by the server" in ended(victim)[1]
    await daemon.connected(neighbour)
    assert "not found" in await daemon.control.terminate(server, 4194305)


def test_the_longest_path_of_a_socket_is_short_enough_for_the_kernel():
    pipes = Path("/run/partita") / GPU / "pipe"
    # 107 bytes: unix(7).
    assert len(str(namespace_directory(pipes, slot_namespace(127)) / "control")) <= 107
