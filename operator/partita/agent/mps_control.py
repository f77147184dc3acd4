"""Client of an MPS control daemon: every command has a deadline, every answer is read strictly.

Commands and their meaning: https://docs.nvidia.com/deploy/mps/latest/mpsv2-interface.html,
"nvidia-cuda-mps-control". What that page leaves open was learnt from those who measured it
(terminate_client against busy servers, 2026): the daemon takes one connection at a time and turns
others away at once, so commands are serialised here and one that was turned away is repeated;
terminate_client answers a CUresult, of which only 0 is success; and any command may never return.
"""

import asyncio
import os
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from partita.agent.errors import MPSGarbledError, MPSGoneError, MPSUnansweredError
from partita.constants import MPS_MAX_CLIENTS

__all__ = [
    "COMMAND_DEADLINE",
    "CONTROL",
    "ControlDaemon",
    "ServerState",
    "max_clients",
    "parse_pids",
    "parse_state",
]

CONTROL: Final = "nvidia-cuda-mps-control"
"""NVIDIA's program: the daemon, and the command that talks to it."""
COMMAND_DEADLINE: Final = 5.0
"""Seconds for one command. An assumption: an idle daemon answers within 50 ms."""
_TURNED_AWAY: Final = "Cannot send command"
_NO_DAEMON: Final = "Cannot find MPS control daemon"
_RETRY: Final = 0.05
"""Seconds before a command that met another one is repeated."""
_ANSWER_LIMIT: Final = 200
"""Characters of a strange answer that are worth telling."""


_MORE_CLIENTS_FROM: Final = 13010
_MORE_CLIENTS: Final = 60
"""Client contexts of one GPU from CUDA 13.1 on:
https://docs.nvidia.com/deploy/mps/latest/when-to-use-mps.html, "Client-Server Connection Limits".
"""


def max_clients(cuda: int | None) -> int:
    """Return how many client contexts MPS serves on one GPU.

    Parameters
    ----------
    cuda
        The newest CUDA that the driver serves, such as 13010 for 13.1; None if unknown.
    """
    return _MORE_CLIENTS if cuda is not None and cuda >= _MORE_CLIENTS_FROM else MPS_MAX_CLIENTS


class ServerState(StrEnum):
    """States of an MPS server (https://docs.nvidia.com/deploy/mps/latest/architecture.html)."""

    INITIALIZING = "INITIALIZING"
    """Clients are queued until it is ready."""
    ACTIVE = "ACTIVE"
    """It takes clients."""
    FAULT = "FAULT"
    """A fatal fault: it takes none until all of them have left."""


def parse_pids(answer: str) -> list[int]:
    """Read the PIDs of a list, one a line.

    Raises
    ------
    MPSGarbledError
        If there is anything else in it.
    """
    words = answer.split()
    if not all(word.isascii() and word.isdigit() and word != "0" for word in words):
        raise MPSGarbledError(f"not a list of PIDs: {answer[:_ANSWER_LIMIT]!r}")
    return [int(word) for word in words]


def parse_state(answer: str) -> ServerState:
    """Read a server's state.

    Raises
    ------
    MPSGarbledError
        If it is none that is documented: an unknown state is no healthy one.
    """
    try:
        return ServerState(answer.strip())
    except ValueError:
        raise MPSGarbledError(f"not a server's state: {answer[:_ANSWER_LIMIT]!r}") from None


@dataclass(frozen=True, slots=True)
class ControlDaemon:
    """The control daemon of one pipe directory.

    Parameters
    ----------
    pipes
        CUDA_MPS_PIPE_DIRECTORY of the daemon.
    lock
        Held while a command runs: the daemon turns a second one away.
    deadline
        Seconds for one command.
    """

    pipes: str
    lock: asyncio.Lock
    deadline: float = COMMAND_DEADLINE

    async def servers(self) -> list[int]:
        """PIDs of its servers: one, or none before the first client."""
        return parse_pids(await self.command("get_server_list"))

    async def state(self, server: int) -> ServerState:
        """State of a server."""
        return parse_state(await self.command(f"get_server_status {server}"))

    async def look(self, server: int) -> tuple[ServerState, list[int]]:
        """State and clients of a server, by one command instead of two."""
        answer = await self.command(f"get_server_status {server}\nget_client_list {server}")
        state, _, pids = answer.strip().partition("\n")
        return parse_state(state), parse_pids(pids)

    async def clients(self, server: int) -> list[int]:
        """PIDs of a server's clients."""
        return parse_pids(await self.command(f"get_client_list {server}"))

    async def start_server(self, uid: int) -> None:
        """Start a server before the first client asks for one."""
        await self.command(f"start_server -uid {uid}")

    async def limit_memory(self, device: int, mebibytes: int) -> None:
        """Set what a client of a server started later may have at most."""
        await self.command(f"set_default_device_pinned_mem_limit {device} {mebibytes}M")

    async def limit_threads(self, percentage: int) -> None:
        """Set the share of the threads that a client may have at most."""
        await self.command(f"set_default_active_thread_percentage {percentage}")

    async def terminate(self, server: int, client: int) -> str:
        """End a client's work on the GPU, and nobody else's; return why it could not be done.

        Empty when it is done. Other answers are a CUresult, or that there is no such client.
        """
        answer = (await self.command(f"terminate_client {server} {client}")).strip()
        return "" if answer == "0" else answer[:_ANSWER_LIMIT] or "no answer"

    async def quit(self) -> None:
        """Ask it to end, and its servers with it."""
        await self.command("quit")

    async def command(self, text: str) -> str:
        """Run one command and return what was answered.

        Raises
        ------
        MPSGoneError
            If there is no daemon.
        MPSUnansweredError
            If the answer did not come in time, or others kept it busy.
        """
        try:
            async with asyncio.timeout(self.deadline), self.lock:
                while True:
                    code, out, err = await self._run(text)
                    if code == 0:
                        return out
                    said = f"{err}{out}".strip()
                    if _NO_DAEMON in said:
                        raise MPSGoneError(said)
                    if _TURNED_AWAY not in said:
                        raise MPSGarbledError(f"{text}: code {code}, {said[:_ANSWER_LIMIT]!r}")
                    await asyncio.sleep(_RETRY)
        except TimeoutError as error:
            raise MPSUnansweredError(f"no answer to {text!r} in {self.deadline:g} s") from error

    async def _run(self, text: str) -> tuple[int, str, str]:
        environment = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": self.pipes}
        try:
            process = await asyncio.create_subprocess_exec(
                CONTROL,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=environment,
            )
        except FileNotFoundError:
            raise MPSGoneError(
                f"{CONTROL} is not on PATH: NVIDIA's runtime brings it with the driver capability "
                "`compute`"
            ) from None
        try:
            out, err = await process.communicate(f"{text}\n".encode())
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return process.returncode or 0, out.decode(errors="replace"), err.decode(errors="replace")
