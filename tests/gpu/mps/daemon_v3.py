"""The fake MPS control daemon with protocol 3: named servers, namespaces, `module verb` commands.

Sources: `interface` is https://docs.nvidia.com/deploy/mps/latest/mpsv3-interface.html, `namespaces`
mpsv3-namespaces.html and `configuration` mpsv3-configuration-file.html there; `guide` is "Per-GPU
Compute and Memory Limits with MPS" (ai-dynamo/dynamo), measured with driver 615.71.09; `kai` is
fractioning-manager/mpsd/internal of kai-scheduler/gpu-fractioning, measured with driver 615.

An assumption (sm-fault-v3): a server that is not `Ready` is `Initializing` or `Fault`. With another
word it is not healthy either, but its condition says that the answer is not understood.

That only root and the owner of a server may send commands (`kai`, mpsns/manager.go) is left out: the
check quit-v3 of `make test-gpu` reports it. The script `hang`, `terminate_hang`, `garbage` and `initialising` work as in `daemon.py`.
"""

from __future__ import annotations

import asyncio
import functools
import os
import tomllib
from pathlib import Path

from daemon import (
    INVALID_RESOURCE_CONFIGURATION,
    MPS_SERVER_NOT_READY,
    Client,
    Daemon,
    Server,
    is_ready,
)
from gpus import gpu_of, peer_of
from lists_v3 import list_clients, list_devices, list_namespaces, list_partitions, list_servers
from servers_v3 import KEYS, SIZE, CommandError, NamedServer, Namespace, check_name, options_of
from sm_partitions import PartitionError

DEFAULT = "default"
NOT_PERMITTED = 800
SERVER_KEYS = KEYS | {"allowed_devices", "uid", "namespaces"}


class DaemonV3(Daemon):
    """The control daemon of one pipe directory."""

    def __init__(self, *, multiuser: bool, config: str) -> None:
        super().__init__(multiuser=multiuser)
        self.config = config
        self.named: dict[str, NamedServer] = {}

    async def run(self) -> None:
        self.prepare()
        for found in self.pipes.iterdir():
            if found.is_dir():  # sockets of an earlier daemon
                for stale in found.rglob("control"):
                    stale.unlink()
        socket = await self.listen(self.pipes, None, None)
        try:
            await self.apply()
            await self.serve_until_stopped([socket])
        finally:
            for server in list(self.named.values()):
                self.remove(server)
            (self.pipes / "control").unlink(missing_ok=True)

    def servers(self) -> list[Server]:
        return [named.server for named in self.named.values()]

    async def apply(self) -> None:
        """`configuration`: it is applied once, at the start; an unknown key is an error."""
        if not self.config:
            return
        read = tomllib.loads(Path(self.config).read_text())  # noqa: ASYNC240
        for name, wanted in read.get("servers", {}).items():
            if unknown := wanted.keys() - SERVER_KEYS:
                raise SystemExit(f"Unknown key {unknown.pop()} in servers.{name}")
            uid = wanted.get("uid", os.getuid())
            server = await self.create_server(name, uid, wanted.get("allowed_devices", ""))
            if server is not None:
                await self.configure(server, wanted)

    async def configure(self, server: NamedServer, wanted: dict) -> None:
        self.limit(server.namespaces[DEFAULT], options_of(wanted))
        for name, limits in wanted.get("namespaces", {}).items():
            if unknown := limits.keys() - KEYS:
                raise SystemExit(f"Unknown key {unknown.pop()} in namespaces.{name}")
            # Its limits are there before its socket.
            made = Namespace(name, server.directory / name, options_of(limits))
            await self.open(server, made)

    # Sockets

    async def listen(
        self, directory: Path, server: NamedServer | None, namespace: str | None
    ) -> asyncio.Server:
        directory.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240
        serve = functools.partial(self.serve, server, namespace)
        socket = await asyncio.start_unix_server(serve, directory / "control")
        (directory / "control").chmod(0o666)
        return socket

    async def open(self, server: NamedServer, namespace: Namespace) -> None:
        """`namespaces`, "Namespace Routing": the sockets of a namespace."""
        namespace.sockets.append(await self.listen(namespace.directory, server, namespace.name))
        if namespace.name == DEFAULT:
            namespace.sockets.append(await self.listen(server.directory, server, DEFAULT))
        server.namespaces[namespace.name] = namespace

    def close(self, namespace: Namespace) -> None:
        """Close its sockets. Its directory stays: `kai`, mpsns/manager.go: it is used again."""
        for socket in namespace.sockets:
            socket.close()
        (namespace.directory / "control").unlink(missing_ok=True)

    async def serve(
        self,
        server: NamedServer | None,
        namespace: str | None,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """One socket takes clients and commands."""
        try:
            line = (await reader.readline()).decode().rstrip("\n")
            word, _, value = line.partition(" ")
            if word == "connect":
                await self.serve_program(server, namespace or DEFAULT, value, reader, writer)
            elif line:
                code, answer = await self.execute(line.split("\x1f")[1:])
                writer.write(f"{code}\n{answer}".encode())
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    # Servers

    async def create_server(self, name: str, uid: int, devices: str) -> NamedServer | None:
        check_name(name)
        if name in self.named:
            raise CommandError(f"Server '{name}' already exists")
        if self.multiuser and uid != 0:
            raise CommandError("Only --uid=0 is allowed in multiuser mode")
        gpu = gpu_of(self.folder, devices.partition(",")[0] or "0")
        process = await self.start_process(CUDA_VISIBLE_DEVICES=gpu.get("uuid", devices))
        directory = self.pipes / name
        logs = self.logs / name
        logs.mkdir(parents=True, exist_ok=True)
        if not await is_ready(process):
            # `guide`: `server create` succeeds, the server exits and is not listed, and its clients
            # run without MPS.
            (logs / "server.log").write_text("no CUDA-capable device is detected\n")
            return None
        made = NamedServer(name, uid, directory, devices, Server(process, uid))
        await self.open(made, Namespace(DEFAULT, directory / DEFAULT))
        self.named[name] = made
        self.log(f"Starting new server {name} {process.pid} for user {uid}")
        self.in_background(self.watch(made))
        return made

    async def watch(self, named: NamedServer) -> None:
        await named.server.process.wait()
        for client in named.server.clients.values():
            client.writer.close()
        self.remove(named)

    def remove(self, named: NamedServer) -> None:
        """A server that has exited is not listed, and nothing of it is left."""
        if self.named.pop(named.name, None) is not None:
            for namespace in named.namespaces.values():
                self.close(namespace)
            (named.directory / "control").unlink(missing_ok=True)

    def status(self, server: Server) -> str:
        state = super().status(server)
        return {"ACTIVE": "Ready", "FAULT": "Fault"}.get(state, "Initializing")

    def write_log(self, server: Server, text: str) -> None:
        name = next(n.name for n in self.named.values() if n.server is server)
        with (self.logs / name / "server.log").open("a") as file:
            file.write(f"[Server {server.process.pid}] {text}\n")

    # Clients

    async def serve_program(
        self,
        named: NamedServer | None,
        namespace: str,
        partition: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        pid, uid = peer_of(writer)
        if named is None:  # no client of Partita comes by the daemon's own socket
            writer.write(f"{MPS_SERVER_NOT_READY}\n".encode())
            return
        server, limits = named.server, named.namespaces.get(namespace)
        error = self.admits_user(named, uid, partition)
        if error or limits is None:
            writer.write(f"{error or MPS_SERVER_NOT_READY}\n".encode())
            return
        client = Client(pid, uid, writer, partition, namespace)
        server.clients[pid] = client
        # `kai`, mpsns/manager.go: a client may take any partition, whatever its namespace.
        share = named.partitions.share(partition) if partition else limits.percentage
        writer.write(f"ok {limits.mebibytes} {share:g}\n".encode())
        try:
            while line := (await reader.readline()).decode().split():
                if line[0] == "fault":
                    self.fault(server, client, by_sm=line[1:] == ["sm"])
        finally:
            server.clients.pop(pid, None)
            server.fault &= bool(server.clients)

    def admits_user(self, named: NamedServer, uid: int, partition: str) -> int:
        """Return why it is refused; 0 if it is not.

        An assumption (sm-fault-static-partitions-v3): as with protocol 2, each client must name its partition. If not, a
        job without one would use all SMs; Partita names one for each job.
        """
        if not self.multiuser and named.uid != uid:
            return NOT_PERMITTED  # `guide`, "Run clients in a namespace"
        if self.status(named.server) != "Ready":
            return MPS_SERVER_NOT_READY
        if partition and partition not in named.partitions:
            return INVALID_RESOURCE_CONFIGURATION
        if not partition and named.partitions.made:
            return INVALID_RESOURCE_CONFIGURATION
        return self.admits_one_more(named.server)

    # Commands

    async def execute(self, words: list[str]) -> tuple[int, str]:
        """Run one command; return exit status and output."""
        self.log(f"Cmd: {' '.join(words)}")
        await self.hang("hang")
        if words[:2] == ["-p", "3"]:
            words = words[2:]
        try:
            answer = await self.dispatch(words)
        except (CommandError, PartitionError) as error:
            return 1, f"{error}\n"
        return 0, "\x1b[?25h~~ NEW UI ~~\n" if self.script("garbage") else answer

    async def dispatch(self, words: list[str]) -> str:
        options = dict(w.removeprefix("--").partition("=")[::2] for w in words if w[0] == "-")
        match [w for w in words if w[0] != "-"]:
            case ["server", verb, *names]:
                return await self.on_server(verb, names, options)
            case ["namespace", verb, *names]:
                return await self.on_namespace(verb, names, options)
            case ["client", "list"]:
                return list_clients(self, options)
            case ["client", "terminate", pid]:
                return await self.end_client(pid)
            case ["device", "list"]:
                return list_devices(self, options)
            case ["sm-partition", verb, *names]:
                return self.on_partition(verb, names, options)
            case [] if words == ["-q"]:
                self.stop.set()
                return ""
        raise CommandError(f"Unknown command: {' '.join(words)}")

    async def on_server(self, verb: str, names: list[str], options: dict[str, str]) -> str:
        if verb == "list":
            return list_servers(self, options)
        (name,) = names
        if verb == "create":
            owner = int(options.get("uid", os.getuid()))
            await self.create_server(name, owner, options.get("allowed-devices", ""))
            return ""
        raise CommandError(f"Unknown command: server {verb}")

    def find(self, name: str) -> NamedServer:
        if name not in self.named:
            raise CommandError(f"Server '{name}' not found")
        return self.named[name]

    def limit(self, namespace: Namespace, options: dict[str, str]) -> None:
        limits = {k: v for k, v in options.items() if k.replace("-", "_") in KEYS}
        size, share = limits.get("pinned-memory-limit"), limits.get("active-thread-percentage")
        if size is not None and SIZE.fullmatch(size) is None:
            raise CommandError(f"Invalid pinned memory limit: {size}")
        if share is not None and not 1 <= float(share) <= 100:
            raise CommandError(f"Invalid active thread percentage: {share}")
        namespace.limits |= limits

    async def on_namespace(self, verb: str, names: list[str], options: dict[str, str]) -> str:
        if verb == "list":
            return list_namespaces(self, options)
        if verb == "get":
            name, owner, what = names
            namespace = self.namespace(self.find(owner), name)
            return {"pipe-directory": f"{namespace.directory}\n"}[what]
        (name,) = names
        server = self.find(options.get("server", ""))
        if verb == "create":
            check_name(name)
            if name in server.namespaces:
                raise CommandError(f"Namespace '{name}' already exists")
            await self.open(server, Namespace(name, server.directory / name))
            return ""
        namespace = self.namespace(server, name)
        if any(c.namespace == name for c in server.server.clients.values()):
            # `kai`, mpsns/manager.go: neither works while a client is attached.
            raise CommandError(f"Namespace '{name}' has active clients")
        self.limit(namespace, options)
        return ""

    def namespace(self, server: NamedServer, name: str) -> Namespace:
        if name not in server.namespaces:
            raise CommandError(f"Namespace '{name}' not found")
        return server.namespaces[name]

    def on_partition(self, verb: str, names: list[str], options: dict[str, str]) -> str:
        gpu = gpu_of(self.folder, options.get("device", "0"))
        if verb == "list":
            return list_partitions(self, options, gpu)
        (name,) = names
        server = self.find(options.get("server", ""))
        check_name(name)
        busy = bool(server.server.clients)
        made = server.partitions.add(gpu, int(options["chunks"]), busy=busy, name=name)
        said = f"SM partition '{name}' created on device {made.device} (sm-count={made.sms})"
        return f"{said}\nCUDA_MPS_SM_PARTITION={made.id}\n"

    async def end_client(self, pid: str) -> str:
        for named in self.named.values():
            if int(pid) in named.server.clients:
                answer = (await self.terminate(named.server, pid)).strip()
                if answer != "0":
                    raise CommandError(f"Failed to terminate client {pid}: {answer}")
                return ""
        raise CommandError(f"Client {pid} not found")
