"""The fake MPS control daemon: the documented commands and states, the documented faults.

Sections are of https://docs.nvidia.com/deploy/mps/latest/: `v2` is "Legacy MPS v2 Interface",
`architecture` "Architecture", `containment` "When to Use MPS", "Memory Protection and Error
Containment". A test makes it misbehave by the file `mps` in FAKE_GPU_DIR, a `key value` a line:

    initialising 1         its servers stay in INITIALIZING
    hang 1                 no command is answered
    terminate_hang 1       terminate_client alone is not answered
    garbage 1              every answer is noise
    refuse_server 1        each server that is started fails

`debian` is what the daemons of Debian's package nvidia-cuda-mps do without a GPU (470.256.02,
535.261.03, 550.163.01, 555.58.02), with a stand-in for the server.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpus import driver_of, end_process, gpu_of, peer_of
from sm_partitions import SMPartitions, answer_v2

SUCCESS = 0
INVALID_CONTEXT = 201
INVALID_RESOURCE_CONFIGURATION = 915
MPS_SERVER_NOT_READY = 807
MPS_MAX_CLIENTS_REACHED = 808
MPS_CLIENT_TERMINATED = 810

POLL = 0.05
"""Seconds."""
ISOLATES_FROM = 610
"""Driver from which SM faults stay in their static partition ("Common Tasks", as below)."""
HAS_STATUS_FROM = 550
"""`debian`: get_server_status is an unknown command before.

An assumption (mps-status): 550 is the first driver with get_server_status; those between 535.261.03
and 550.163.01 were not tried. Partita asks by what the daemon answers, not by the version."""
MAX_CLIENTS = 48
"""`containment`, "Client-Server Connection Limits": client CUDA contexts of one device. Since CUDA
13.1 it is 60; no test starts as many."""


@dataclass
class Client:
    """A connected program."""

    pid: int
    uid: int
    writer: asyncio.StreamWriter
    partition: str = ""
    """Its CUDA_MPS_SM_PARTITION."""
    namespace: str = ""
    """The namespace through which it connected; v3 alone."""
    active: bool = True


@dataclass
class Server:
    """One nvidia-cuda-mps-server."""

    process: asyncio.subprocess.Process
    uid: int
    ready: bool = True
    fault: bool = False
    terminating: int = 0
    """Clients that are being terminated."""
    clients: dict[int, Client] = field(default_factory=dict)


async def is_ready(server: asyncio.subprocess.Process) -> bool:
    """Whether a server that was started finds a GPU, once it has said so."""
    assert server.stdout is not None
    return await server.stdout.readline() == b"ready\n"


class Daemon:
    """The control daemon of one pipe directory."""

    def __init__(self, *, multiuser: bool, static: bool = False) -> None:
        self.multiuser = multiuser
        self.foreground = False
        self.pipes = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))
        self.logs = Path(os.environ.get("CUDA_MPS_LOG_DIRECTORY", "/var/log/nvidia-mps"))
        self.folder = Path(os.environ["FAKE_GPU_DIR"])
        self.stop = asyncio.Event()
        self.server: Server | None = None
        self.starting = asyncio.Lock()
        # v2: defaults are lost on `quit`, so they are nowhere but in this process.
        self.busy = False
        self.partitions = SMPartitions() if static else None
        self.tasks: set[asyncio.Task[None]] = set()

    def script(self, key: str) -> str:
        try:
            lines = (self.folder / "mps").read_text().splitlines()
        except FileNotFoundError:
            return ""
        return next((v for k, _, v in (line.partition(" ") for line in lines) if k == key), "")

    async def hang(self, key: str) -> None:
        """Stand still as long as the script says so."""
        while self.script(key):
            await asyncio.sleep(POLL)

    def log(self, text: str) -> None:
        self.write("control.log", f"[Control {os.getpid()}] {text}")

    def write(self, name: str, line: str) -> None:
        """`debian`: with -f all is written to standard output, and there is no log file.

        So are the lines of its servers (https://github.com/NVIDIA/k8s-device-plugin/issues/1614).
        """
        if self.foreground:
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
            return
        with (self.logs / name).open("a") as file:
            file.write(f"{line}\n")

    # Servers

    async def start_server(self, uid: int) -> None:
        """`architecture`, "Server": at most one is active at a time.

        `debian`: one that has just been started is listed, and is INITIALIZING.
        """
        async with self.starting:
            if self.server is not None:
                return
            process = await self.start_process()
            # v2: a default changed later affects only the next server.
            server = Server(process, uid, ready=False)
            self.server = server
            self.log(f"Starting new server {process.pid} for user {uid}")
            self.in_background(self.attend(server))
            server.ready = await is_ready(process) and not self.script("refuse_server")
            if not server.ready:
                # https://github.com/NVIDIA/k8s-device-plugin/issues/685 and 762
                self.log("Server encountered a fatal exception. Shutting down")
                with suppress(ProcessLookupError):
                    process.kill()

    def in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def start_process(self, **environment: str) -> asyncio.subprocess.Process:
        """Start an nvidia-cuda-mps-server."""
        return await asyncio.create_subprocess_exec(
            Path(sys.argv[0]).parent / "nvidia-cuda-mps-server",
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **environment},
        )

    async def attend(self, server: Server) -> None:
        """A server that dies takes its clients with it; the next one is another."""
        await server.process.wait()
        self.log(f"Server {server.process.pid} exited with status {server.process.returncode}")
        for client in server.clients.values():
            client.writer.close()
        if self.server is server:
            self.server = None

    def status(self, server: Server) -> str:
        """`architecture`, "Server": INITIALIZING, ACTIVE or FAULT."""
        if self.script("initialising") or not server.ready:
            return "INITIALIZING"
        return "FAULT" if server.fault else "ACTIVE"

    # Clients

    async def serve_client(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        pid, uid = peer_of(writer)
        server: Server | None = None
        try:
            while line := (await reader.readline()).decode().strip():
                word, _, value = line.partition(" ")
                if word == "connect":
                    # `architecture`: without -multiuser-server a server has its client's user,
                    # with it all users' clients are the root server's.
                    await self.start_server(0 if self.multiuser else uid)
                    server = self.server
                    error = self.admits(server, uid) or self.admits_to(value)
                    if error or server is None:
                        writer.write(f"{error or MPS_SERVER_NOT_READY}\n".encode())
                        return
                    server.clients[pid] = Client(pid, uid, writer, value)
                    share = self.partitions.share(value) if self.partitions else 100.0
                    # "There is no memory limit set" by default (v2).
                    writer.write(f"ok 0 {share:g}\n".encode())
                elif word == "fault" and server is not None:
                    self.fault(server, server.clients[pid], by_sm=value == "sm")
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            if server is not None:
                server.clients.pop(pid, None)
                # `containment`: ACTIVE again when all clients of the GPU have exited.
                server.fault &= bool(server.clients)

    def admits_to(self, partition: str) -> int:
        """ "When to Use MPS", "Static SM Partitioning": each client must name its partition."""
        if self.partitions is not None and partition not in self.partitions:
            return INVALID_RESOURCE_CONFIGURATION
        return 0

    def admits(self, server: Server | None, uid: int) -> int:
        if server is None or self.status(server) != "ACTIVE":
            # `architecture`: rejected with CUDA_ERROR_MPS_SERVER_NOT_READY while in FAULT.
            return MPS_SERVER_NOT_READY
        if not self.multiuser and server.uid != uid:
            # "Troubleshooting Guide", "User ID Mismatch Without Multi-User Mode".
            return MPS_SERVER_NOT_READY
        return self.admits_one_more(server)

    def admits_one_more(self, server: Server) -> int:
        if server.terminating:
            return MPS_SERVER_NOT_READY  # `containment`, "Client Early Termination"
        return MPS_MAX_CLIENTS_REACHED if len(server.clients) >= MAX_CLIENTS else 0

    def write_log(self, server: Server, text: str) -> None:
        self.write("server.log", f"[Server {server.process.pid}] {text}")

    def fault(self, server: Server, client: Client, *, by_sm: bool) -> None:
        """`containment`: told to all clients on the GPU, without saying who it was.

        An assumption (sm-fault): the log calls a fault of all clients fatal. If not, the server's
        state and Xids still report the fault, unless all clients have exited before the next look.

        "Common Tasks", "Using Static SM Partitioning": from r610 on clients in different
        partitions are isolated from each other's SM-triggered faults.
        """
        if by_sm and client.partition and driver_of(self.folder) >= ISOLATES_FROM:
            for other in server.clients.values():
                if other.partition == client.partition:
                    other.active = False
                    other.writer.write(b"fault\n")
            return
        server.fault = True
        self.write_log(
            server, f"fatal fault, affected clients: {' '.join(map(str, server.clients))}"
        )
        for other in server.clients.values():
            other.active = False
            other.writer.write(b"fault\n")

    # Commands

    async def serve_command(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """One connection at a time: another is turned away (`debian`)."""
        try:
            if self.busy:
                writer.write(b"busy\n")
                return
            self.busy = True
            try:
                while line := (await reader.readline()).decode().strip():
                    self.log(f"Cmd:{line}")
                    await self.hang("hang")
                    answer = await self.answer(line.split())
                    if self.script("garbage"):
                        answer = "\x1b[?25h~~ NEW UI ~~\n"
                    writer.write(answer.encode())
            finally:
                self.busy = False
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def answer(self, words: list[str]) -> str:  # noqa: PLR0911 - a command each
        """Answer a command, as v2 describes it.

        An assumption (mps-status): a list has a PID a line, a state stands alone, and an unknown
        server is `Server <PID> not found`. If not, the agent cannot read it, and MPS is not ready.
        """
        server = self.server
        known = server if server is not None and str(server.process.pid) in words[1:2] else None
        missing = f"Server {words[1]} not found\n" if len(words) > 1 else "Server 0 not found\n"
        match words:
            case ["get_server_status", _] if driver_of(self.folder) < HAS_STATUS_FROM:
                return 'Unknown command "get_server_status"\n'
            case ["get_server_list"]:
                return f"{server.process.pid}\n" if server else "\n"
            case ["get_server_status", _]:
                return f"{self.status(known)}\n" if known else missing
            case ["ps"]:
                # `debian`; the columns are those of the v2 interface, its rows are not needed.
                ready = server is not None and self.status(server) != "INITIALIZING"
                return "PID ID SERVER DEVICE NAMESPACE COMMAND\n" if ready else "Server not found\n"
            case ["start_server", "-uid", uid]:
                self.in_background(self.start_server(0 if self.multiuser else int(uid)))
                return ""
            case ["get_client_list", _]:
                return "".join(f"{pid}\n" for pid in known.clients) if known else missing
            case ["terminate_client", _, pid]:
                unknown = f"{missing}{missing.strip()}!\n1\n"
                return await self.terminate(known, pid) if known else unknown
            case ["sm_partition" | "lspart", *_]:
                used = {c.partition for c in server.clients.values()} if server else set()
                gpu = gpu_of(self.folder, words[2] if len(words) > 2 else "0")
                return answer_v2(self.partitions, words, gpu, used)
            case ["quit", *_]:
                self.stop.set()
                return ""
            case _:
                return f'Unknown command "{words[0]}"\n' if words else ""

    async def terminate(self, server: Server, pid: str) -> str:
        """`containment`, "Client Early Termination": answers a CUresult, 0 when it is done."""
        client = server.clients.get(int(pid))
        if client is None:
            return f"Invalid process {pid}!\n"
        if not client.active:
            return f"{INVALID_CONTEXT}\n"
        server.terminating += 1
        try:
            await self.hang("terminate_hang")
            await end_process(self.folder, client.pid, MPS_CLIENT_TERMINATED)
        finally:
            server.terminating -= 1
        client.writer.write(b"terminated\n")
        return f"{SUCCESS}\n"

    async def run(self) -> None:
        self.prepare()
        control, clients = self.pipes / "control", self.pipes / "clients"
        servers = [
            await asyncio.start_unix_server(self.serve_client, clients),
            await asyncio.start_unix_server(self.serve_command, control),
        ]
        for path in (control, clients):
            path.chmod(0o666)
        await self.serve_until_stopped(servers)
        for path in (control, clients):
            path.unlink(missing_ok=True)

    def prepare(self) -> None:
        """Make the directories, where no other daemon serves them."""
        self.pipes.mkdir(parents=True, exist_ok=True)
        self.logs.mkdir(parents=True, exist_ok=True)
        control = self.pipes / "control"
        if control.exists() and is_alive(control):
            sys.exit("An instance of this daemon is already running")
        for path in (control, self.pipes / "clients"):
            path.unlink(missing_ok=True)
        (self.pipes / "nvidia-cuda-mps-control.pid").write_text(f"{os.getpid()}\n")

    async def serve_until_stopped(self, sockets: list[asyncio.Server]) -> None:
        self.log(f"Starting control daemon using socket {self.pipes / 'control'}")
        await self.stop.wait()
        self.log("Exit")
        for each in sockets:
            each.close()
        for server in self.servers():
            server.process.kill()
            await server.process.wait()
        (self.pipes / "nvidia-cuda-mps-control.pid").unlink(missing_ok=True)

    def servers(self) -> list[Server]:
        """All running servers."""
        return [self.server] if self.server else []


def is_alive(control: Path) -> bool:
    """Whether a daemon listens on a socket."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(control)) == 0
