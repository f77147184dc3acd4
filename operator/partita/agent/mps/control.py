"""Sends commands to an MPS control daemon: each has a deadline, each answer is parsed strictly.

Commands and their meaning: https://docs.nvidia.com/deploy/mps/latest/mpsv2-interface.html,
"nvidia-cuda-mps-control". That page does not show what the program prints. "Debian" below are the
daemons of Debian's package nvidia-cuda-mps 535.261.03 and 550.163.01, which were tried without a
GPU, with a stand-in for the server. They accept one connection at a time and reject others at once,
so commands are serialised here and rejected commands are repeated. They exit with 0 also if a
command fails. A daemon that hangs never answers.
"""

import asyncio
import os
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from partita.agent.errors import (
    MPSBusyError,
    MPSGarbledError,
    MPSGoneError,
    MPSRefusedError,
    MPSUnansweredError,
)
from partita.agent.mps.sm_partitions import equal_chunks, no_partitions, parse_partitions
from partita.constants import MPS_MAX_CLIENTS

__all__ = [
    "COMMAND_DEADLINE",
    "CONTROL",
    "NOT_INSTALLED",
    "MPSControl",
    "ServerState",
    "max_clients",
    "parse_pids",
    "parse_state",
]

CONTROL: Final = "nvidia-cuda-mps-control"
"""NVIDIA's program for both the daemon and the command-line client."""
NOT_INSTALLED: Final = (
    f"{CONTROL} is not on PATH: NVIDIA's runtime installs it with the driver capability `compute`"
)
COMMAND_DEADLINE: Final = 5.0
"""Seconds for one command. An assumption: an idle daemon answers within 50 ms."""
_REJECTED: Final = "Cannot send command"
_NO_DAEMON: Final = "Cannot find MPS control daemon"
"""Both Debian, with exit code 1.

An assumption (mps-start-stop): drivers after 555 say the same two sentences when a command finds no
daemon or is rejected. If not, MPS is restarted because of a command that was only rejected."""
_NO_STATUS: Final = 'Unknown command "get_server_status"'
_NOT_READY: Final = "Server not found"
"""Debian 535.261.03: a daemon that cannot tell a server's state, and its answer to `ps` while its
server is not ready.

An assumption (mps-status): `ps` lists the clients afterwards. If not, MPS is never ready with such
drivers."""
_RETRY: Final = 0.05
"""Seconds before a rejected command is repeated."""
_ROOT: Final = 0
_ANSWER_LIMIT: Final = 200
"""Characters of an unexpected answer that a message quotes."""


_MORE_CLIENTS_FROM: Final = 13010
_MORE_CLIENTS: Final = 60
"""Client contexts of one GPU since CUDA 13.1:
https://docs.nvidia.com/deploy/mps/latest/when-to-use-mps.html, "Client-Server Connection Limits".
"""


def max_clients(cuda: int | None) -> int:
    """Return how many client contexts MPS supports on one GPU.

    Parameters
    ----------
    cuda
        The newest CUDA that the driver supports, such as 13010 for 13.1; None if unknown.
    """
    return _MORE_CLIENTS if cuda is not None and cuda >= _MORE_CLIENTS_FROM else MPS_MAX_CLIENTS


class ServerState(StrEnum):
    """States of an MPS server (https://docs.nvidia.com/deploy/mps/latest/architecture.html)."""

    INITIALIZING = "INITIALIZING"
    """Clients are queued until the server is ready."""
    ACTIVE = "ACTIVE"
    """The server accepts clients."""
    FAULT = "FAULT"
    """Fatal fault: the server accepts no clients until all existing clients have exited."""


def parse_pids(answer: str) -> list[int]:
    """Parse a list of PIDs, one a line.

    Raises
    ------
    MPSGarbledError
        The answer is not a list of PIDs.
    """
    words = answer.split()
    if not all(word.isascii() and word.isdigit() and word != "0" for word in words):
        raise MPSGarbledError(f"not a list of PIDs: {answer[:_ANSWER_LIMIT]!r}")
    return [int(word) for word in words]


def parse_state(answer: str) -> ServerState:
    """Parse a server's state.

    Raises
    ------
    MPSGarbledError
        The state is not documented: an unknown state never counts as healthy.
    """
    try:
        return ServerState(answer.strip())
    except ValueError:
        raise MPSGarbledError(f"not a server's state: {answer[:_ANSWER_LIMIT]!r}") from None


@dataclass(frozen=True, slots=True)
class MPSControl:
    """A client of the control daemon of one pipe directory, which speaks protocol 2.

    `MPSControlV3` is the one for protocol 3.

    Parameters
    ----------
    pipes
        CUDA_MPS_PIPE_DIRECTORY of the daemon.
    lock
        Held while a command runs: the daemon rejects a second connection.
    deadline
        Seconds for one command.
    """

    pipes: str
    lock: asyncio.Lock
    deadline: float = COMMAND_DEADLINE

    async def servers(self) -> list[int]:
        """Return the PIDs of the daemon's servers: one, or none before the first client."""
        return parse_pids(await self.command("get_server_list"))

    async def state(self, server: int) -> ServerState:
        """Return the state of a server."""
        return await self._state(await self.command(f"get_server_status {server}"))

    async def _state(self, answer: str) -> ServerState:
        """Read a state; if the daemon cannot tell it, whether the server is ready.

        Logs and Xids report a fault of such a server, and a canary shows whether it takes clients.
        """
        if answer.strip() != _NO_STATUS:
            return parse_state(answer)
        is_ready = (await self.command("ps")).strip() != _NOT_READY
        return ServerState.ACTIVE if is_ready else ServerState.INITIALIZING

    async def status(self, server: int) -> tuple[ServerState, list[int]]:
        """Return the state and the clients of a server, by one command instead of two."""
        answer = await self.command(f"get_server_status {server}\nget_client_list {server}")
        state, _, pids = answer.strip().partition("\n")
        return await self._state(state), parse_pids(pids)

    async def clients(self, server: int) -> list[int]:
        """Return the PIDs of a server's clients."""
        return parse_pids(await self.command(f"get_client_list {server}"))

    async def prepare(self, uuid: str, sm_partitions: int) -> tuple[str, ...]:
        """Partition the SMs and start the server of all clients, which sets no limits itself.

        It is called until the server is ACTIVE, and before the first client connects.

        Parameters
        ----------
        uuid
            The GPU.
        sm_partitions
            Number of equal static SM partitions; 0 for none.

        Returns
        -------
        tuple of str
            CUDA_MPS_SM_PARTITION of the partitions.

        Raises
        ------
        SetupError
            The SMs cannot be partitioned.
        """
        partitions = await self._partition_sms(uuid, sm_partitions) if sm_partitions else ()
        await self.start_server(_ROOT)
        return partitions

    async def _partition_sms(self, uuid: str, count: int) -> tuple[str, ...]:
        """Create the missing partitions; return all.

        A partition takes exclusive SMs from the server's start on
        (https://docs.nvidia.com/deploy/mps/latest/common-tasks.html, "Using Static SM
        Partitioning"), so this is done before the server is started.
        """
        all_chunks, names = parse_partitions(await self.command("lspart"))
        made = [f"{uuid}/{name}" for name in names]
        while len(made) < count:
            chunks = equal_chunks(all_chunks, count)
            answer = (await self.command(f"sm_partition add {uuid} {chunks}")).strip()
            if not answer.startswith(f"{uuid}/") or len(answer.split()) != 1:
                raise no_partitions(answer)
            made.append(answer)
        return tuple(made)

    async def start_server(self, uid: int) -> None:
        """Start a server before the first client connects."""
        await self.command(f"start_server -uid {uid}")

    async def terminate(self, server: int, client: int) -> str:
        """Terminate the GPU work of one client; return the error, empty on success.

        The error is a CUresult (docs.nvidia.com/deploy/mps, "Client Early Termination"), or says
        that the server is unknown (Debian).

        An assumption (terminate-and-kill-v2): `terminate_client` answers `0` alone on success. If
        not, each terminated client counts as one that was not, and is also signalled.
        """
        answer = (await self.command(f"terminate_client {server} {client}")).strip()
        return "" if answer == "0" else answer[:_ANSWER_LIMIT] or "no answer"

    async def quit(self) -> None:
        """Make the daemon and its servers exit."""
        await self.command("quit")

    async def command(self, text: str) -> str:
        """Run one command of protocol 2 and return its output.

        Raises
        ------
        MPSGoneError
            No daemon runs.
        MPSBusyError
            Another command did not end in time, such as one that terminates a client.
        MPSUnansweredError
            The daemon did not answer in time.
        """
        return await self.execute(text=text)

    async def execute(self, *arguments: str, text: str = "") -> str:
        """Run NVIDIA's program and return its output.

        Raises
        ------
        MPSRefusedError
            The program reports another error than those of `command`.
        """
        said = text or " ".join(arguments)
        waits = True
        try:
            async with asyncio.timeout(self.deadline), self.lock:
                waits = False
                while True:
                    code, out, err = await self._run(text, *arguments)
                    if code == 0:
                        return out
                    answer = f"{err}{out}".strip()[:_ANSWER_LIMIT]
                    if _NO_DAEMON in answer:
                        raise MPSGoneError(answer)
                    if _REJECTED not in answer:
                        raise MPSRefusedError(f"{said}: {answer or f'exit code {code}'}")
                    await asyncio.sleep(_RETRY)
        except TimeoutError as error:
            if waits:
                raise MPSBusyError(f"another command kept {said!r} from running") from error
            raise MPSUnansweredError(f"no answer to {said!r} in {self.deadline:g} s") from error

    async def _run(self, text: str, *arguments: str) -> tuple[int, str, str]:
        environment = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": self.pipes}
        try:
            process = await asyncio.create_subprocess_exec(
                CONTROL,
                *arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=environment,
            )
        except FileNotFoundError:
            raise MPSGoneError(NOT_INSTALLED) from None
        try:
            out, err = await process.communicate(f"{text}\n".encode())
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return process.returncode or 0, out.decode(errors="replace"), err.decode(errors="replace")
