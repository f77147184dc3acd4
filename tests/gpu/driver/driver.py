"""The fake GPUs' kernel driver: knows which processes use them, by the node's own PIDs.

Programs (`cuda/client.c`) connect to `driver.sock` and say what they take; a connection's end is
the process's end, however it came.

Lines of a program, each answered by `ok` or a CUDA error number
(https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html, `CUresult`):

    attach <gpu> <kind>     it uses this GPU from now on; kind as in state.h
    open                    a context. Answered `ok <bytes that it takes>`
    use <bytes> <percent>   what it has of the GPU from now on
    info                    the memory. Answered `ok <free bytes> <total bytes>`
    close                   the context is no more
    xid <number>            it made the GPU report this

A process that the driver ends is told `end <error>`, without asking. MPS's server asks for it
(`mps/daemon.py`), with a line that is answered once the process has nothing in flight:

    end <pid> <error>

A program gets CUDA_ERROR_UNKNOWN if this process is gone: so a test ends, and no GPU is meant.

Lines of NVML (`nvml/limits.c`), answered by `ok` or an NVML error number; a cgroup is named by its
folder's inode:

    set-limits <gpu> <cgroup> <soft> <hard>
    get-limits <gpu> <cgroup>               Answered `ok <soft> <hard> <used>`

`mp` is https://docs.nvidia.com/deploy/mps/mpsv3-memory-partitioning.html, `kai` is
kai-scheduler/kai-gpu-fractioning, pull request 147, drain.go.

A client of MPS that is killed while it computes leaves work in flight behind (`kai`). What comes
of that the key `kill` of the file `mps` says, so that a test knows it:

    kill fault              all other clients of the GPU fail with an illegal address
    kill orphan             nobody consumes the fault: MPS is wedged, `gpu-<n>.wedged` is there
    kill harmless           nothing; also without the key

While it is wedged the server and its clients look healthy, each later client hangs in CUDA's
initialisation, and no client can be terminated, until the server has gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from dataclasses import dataclass
from pathlib import Path

from cgroups import CgroupTree, value_of
from memory_limits import Dmem, Limits, Misc

INVALID_VALUE = 1
OUT_OF_MEMORY = 2
DEVICE_UNAVAILABLE = 46
NO_DEVICE = 100
INVALID_DEVICE = 101
INVALID_CONTEXT = 201
ILLEGAL_ADDRESS = 700
MPS_RPC_FAILURE = 806
MPS_CLIENT_TERMINATED = 810
EXCLUSIVE_PROCESS = 3
PROHIBITED = 2

FIRST_WITH_LIMITS = 615
"""The first driver that limits the memory of cgroups (`mp`: CUDA 13.4, whose driver is 615)."""
SERVER_MEMORY = 25 << 20
"""Bytes that NVML lists for a server of MPS. 25 MiB are shown in MicrosoftDocs/azure-docs,
articles/databox-online/azure-stack-edge-gpu-deploy-kubernetes-gpu-sharing.md, up to 30 elsewhere."""
POLL = 0.05
"""Seconds."""

NVML_NOT_SUPPORTED = 3
NVML_NOT_FOUND = 6
NVML_MAX = 0xFFFFFFFFFFFFFFFF
"""`NVML_DEVICE_MEMORY_LIMIT_MAX`: no limit."""


@dataclass(eq=False)
class Process:
    """What one process has of a GPU."""

    pid: int
    group: Path
    writer: asyncio.StreamWriter
    gpu: int = -1
    kind: str = "C"
    memory: int = 0
    sm: int = 0
    ended: int = 0
    """The error with which the driver ended it."""

    def end(self, error: int) -> None:
        """End it: what it had is free at once, and its next calls return the error."""
        self.memory, self.sm, self.ended = 0, 0, error
        # After the answer to whoever asked: MPS takes no new clients until it has that.
        asyncio.get_running_loop().call_soon(self.writer.write, f"end {error}\n".encode())


class Driver:
    """All GPUs of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tree = CgroupTree(folder / "cgroup")
        self.dmem = Dmem(self.tree)
        self.misc = Misc(self.tree)
        self.processes: list[Process] = []
        self.bindings: dict[tuple[int, Path], list[tuple[Path, Limits]]] = {}

    def figure(self, gpu: int, key: str) -> int:
        return int(value_of(self.folder / f"gpu-{gpu}", key) or 0)

    @property
    def backend(self) -> Dmem | Misc | None:
        """`mp`, "Backends"."""
        driver = self.folder / "driver"
        major, _, _ = value_of(driver, "version").partition(".")
        off = int(major) < FIRST_WITH_LIMITS
        if off or not self.tree.exists:
            return None
        return self.dmem if self.tree.has_dmem else self.misc

    # Contexts

    def on(self, gpu: int) -> list[Process]:
        return [p for p in self.processes if p.gpu == gpu]

    def open(self, process: Process) -> int:
        """Make a context.

        EXCLUSIVE_PROCESS: "only one context is allowed per device, usable from multiple threads
        at a time" (`nvmlComputeMode_t`, https://docs.nvidia.com/deploy/nvml-api/); MPS's clients
        are the server's (https://docs.nvidia.com/deploy/mps/, "GPU Compute Modes").
        """
        gpu = process.gpu
        if not (self.folder / f"gpu-{gpu}").exists():
            return INVALID_DEVICE
        with contextlib.suppress(FileNotFoundError):
            mode = int((self.folder / f"gpu-{gpu}.mode").read_text())
            if mode == PROHIBITED:
                return DEVICE_UNAVAILABLE
            alone = [p for p in self.on(gpu) if p.kind != "M"]
            if mode == EXCLUSIVE_PROCESS and process.kind != "M" and alone:
                return DEVICE_UNAVAILABLE
        self.processes.append(process)
        taken = SERVER_MEMORY if process.kind == "S" else self.figure(gpu, "context")
        error = self.use(process, taken, 0)
        if error:
            self.close(process)
        return error

    def close(self, process: Process) -> None:
        if process in self.processes:
            self.processes.remove(process)
            self.write(process)

    def write(self, changed: Process) -> None:
        gpu = changed.gpu
        path = self.folder / f"gpu-{gpu}.processes"
        lines = [f"{p.pid} {p.memory} {p.sm} {p.kind}\n" for p in self.on(gpu)]
        path.with_suffix(".next").write_text("".join(lines))
        path.with_suffix(".next").replace(path)
        if self.backend is not None:
            used = dict.fromkeys(self.tree.chain(changed.group), 0)
            for process in self.on(gpu):
                for level in self.tree.chain(process.group):
                    used[level] = used.get(level, 0) + process.memory
            self.backend.charge(gpu, used)

    # Work in flight

    def leave(self, process: Process) -> None:
        """A process has ended, whichever way."""
        wedged = self.wedged(process.gpu)
        if process.kind == "S":
            wedged.unlink(missing_ok=True)
        in_flight = process.kind == "M" and process.sm > 0
        self.close(process)
        if not in_flight or all(p.kind != "S" for p in self.on(process.gpu)):
            return
        others = [p for p in self.on(process.gpu) if p.kind == "M"]
        script = self.folder / "mps"
        outcome = value_of(script, "kill") if script.exists() else ""
        if outcome == "fault":
            for other in others:
                other.end(ILLEGAL_ADDRESS)
                self.write(other)
        elif outcome == "orphan":
            wedged.touch()

    def wedged(self, gpu: int) -> Path:
        """The file that is there while MPS is wedged on a GPU; a test may make it, too."""
        return self.folder / f"gpu-{gpu}.wedged"

    async def until_not_wedged(self, gpu: int) -> None:
        while self.wedged(gpu).exists():
            await asyncio.sleep(POLL)

    async def attach(self, process: Process) -> int:
        """A container has the device files of its own GPUs only, whatever its variables are.

        An assumption (kill-v2): a client that hung fails when its server goes. If it hangs on, its
        Pod does until its deadline, and the canary is killed all the same.
        """
        if not self.tree.allows(
            process.group, value_of(self.folder / f"gpu-{process.gpu}", "uuid")
        ):
            return NO_DEVICE
        if process.kind != "M" or not self.wedged(process.gpu).exists():
            return 0
        await self.until_not_wedged(process.gpu)
        return MPS_RPC_FAILURE

    async def end(self, pid: int, error: int) -> int:
        """ "Client Early Termination": with its context goes its work in flight."""
        for process in [p for p in self.processes if p.pid == pid]:
            await self.until_not_wedged(process.gpu)
            process.end(error)
            self.write(process)
        return 0

    # Memory

    def use(self, process: Process, memory: int, sm: int) -> int:
        """`mp`, "Enforcement": a limit of its cgroup, then the GPU's memory."""
        more = memory - process.memory
        if more > 0:
            for level, limits in self.binding(process):
                if limits.hard is not None and self.used(process.gpu, level) + more > limits.hard:
                    return OUT_OF_MEMORY
            while more > self.free(process.gpu):
                victim = self.victim(process, more)
                if victim is None:
                    return OUT_OF_MEMORY
                victim.end(MPS_CLIENT_TERMINATED)
        process.memory, process.sm = memory, sm
        self.write(process)
        return 0

    def free(self, gpu: int) -> int:
        used = self.figure(gpu, "reserved") + sum(p.memory for p in self.on(gpu))
        return self.figure(gpu, "memory") - used

    def binding(self, process: Process) -> list[tuple[Path, Limits]]:
        """Of many processes in a cgroup the files are read once in a request."""
        key = process.gpu, process.group
        if key not in self.bindings:
            self.bindings[key] = self.backend.binding(*key) if self.backend else []
        return self.bindings[key]

    def used(self, gpu: int, level: Path) -> int:
        """Bytes of a cgroup: of all processes that its limits bind, MPS's clients or not."""
        bound = [p for p in self.on(gpu) if level in dict(self.binding(p))]
        return sum(p.memory for p in bound)

    def borrowed(self, process: Process, more: int = 0) -> int:
        """Bytes above the soft limit of its cgroup; it is a guarantee, so 0 without one."""
        for level, limits in self.binding(process)[:1]:
            return self.used(process.gpu, level) + more - limits.soft
        return 0

    def victim(self, process: Process, more: int) -> Process | None:
        """`mp`, "MPS Pressure Handling and Eviction": who has to go for an allocation.

        MPS ends a client above its soft limit for one that is within its own; never the one that
        asks.

        An assumption (no check): MPS takes memory from the cgroup which has borrowed most, its
        largest process first. If it takes another, another borrower starts anew
        (`partita.jobs.reclaims`); none within its guarantee does.
        """
        if process.kind != "M" or not self.binding(process) or self.borrowed(process, more) > 0:
            return None
        others = [p for p in self.on(process.gpu) if p.group != process.group and p.kind == "M"]
        borrowers = [p for p in others if p.memory and self.borrowed(p) > 0]
        return max(borrowers, key=lambda p: (self.borrowed(p), p.memory), default=None)

    def info(self, process: Process) -> str:
        """`mp`, "How Limits Are Reported"; of dmem's levels the process's own cgroup alone shows
        (the guide "Per-GPU Compute and Memory Limits with MPS", "Pick where to apply the limit").
        """
        total, free = self.figure(process.gpu, "memory"), max(self.free(process.gpu), 0)
        for level, limits in self.binding(process)[:1]:
            if limits.hard is not None:
                total = min(total, limits.hard)
                free = min(free, max(total - self.used(process.gpu, level), 0))
        return f"ok {free} {total}"

    # NVML

    def set_limits(self, gpu: int, inode: int, soft: int, hard: int) -> int:
        """`nvmlDeviceSetMemoryLimits_v1`."""
        group, backend = self.tree.find(inode), self.backend
        if backend is None or self.figure(gpu, "mig"):
            return NVML_NOT_SUPPORTED
        capacity = self.figure(gpu, "memory")
        limits = Limits(min(soft, capacity), None if hard == NVML_MAX else hard)
        return 0 if group is not None and backend.set(gpu, group, limits) else NVML_NOT_FOUND

    def get_limits(self, gpu: int, inode: int) -> str:
        """`nvmlDeviceGetMemoryLimits_v1`."""
        group, backend = self.tree.find(inode), self.backend
        if backend is None or self.figure(gpu, "mig"):
            return str(NVML_NOT_SUPPORTED)
        limits = None if group is None else backend.get(gpu, group)
        if group is None or limits is None:
            return str(NVML_NOT_FOUND)
        used = sum(p.memory for p in self.on(gpu) if group in self.tree.chain(p.group))
        return f"ok {limits.soft} {NVML_MAX if limits.hard is None else limits.hard} {used}"

    # Connections

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("socket")
        # struct ucred, unix(7): the PID is translated into our own PID namespace.
        pid, _, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        process = Process(pid, self.tree.root, writer)
        try:
            while line := (await reader.readline()).decode().split():
                answer = await self.answer(process, line)
                writer.write(f"{answer or 'ok'}\n".encode())
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self.leave(process)
            writer.close()

    def show(self, process: Process) -> None:
        """Put a container's process into the `proc` that a test gives to the agent, if it does."""
        proc = self.folder / "proc"
        if process.group == self.tree.root or not proc.exists():
            return
        shown = proc / str(process.pid)
        shown.mkdir(exist_ok=True)
        (shown / "cgroup").write_text(f"0::/{process.group.relative_to(self.tree.root)}\n")
        for file in ("stat", "status"):
            with contextlib.suppress(FileExistsError):
                (shown / file).symlink_to(f"/proc/{process.pid}/{file}")

    async def answer(  # noqa: PLR0911 - one for each line
        self, process: Process, line: list[str]
    ) -> int | str:
        """Do what a line asks for; an answer of 0 is `ok`."""
        self.bindings.clear()
        match line:
            case ["set-limits", gpu, inode, soft, hard]:
                return self.set_limits(int(gpu), int(inode), int(soft), int(hard))
            case ["get-limits", gpu, inode]:
                return self.get_limits(int(gpu), int(inode))
            case ["attach", gpu, kind]:
                process.gpu, process.kind = int(gpu), kind
                process.group = self.tree.of(process.pid)
                self.show(process)
                return await self.attach(process)
            case ["end", pid, error]:
                return await self.end(int(pid), int(error))
            case _ if process.ended:
                return process.ended
            case ["open"]:
                return self.open(process) or f"ok {process.memory}"
            case _ if process not in self.processes:
                return INVALID_CONTEXT
            case ["use", memory, sm]:
                return self.use(process, int(memory), int(sm))
            case ["info"]:
                return self.info(process)
            case ["close"]:
                self.close(process)
                return 0
            case ["xid", number]:
                with (self.folder / f"gpu-{process.gpu}.xids").open("a") as file:
                    file.write(f"{number}\n")
                return 0
        return INVALID_VALUE
