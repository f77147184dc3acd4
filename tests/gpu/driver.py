"""The fake GPUs' kernel driver: knows which processes use them, by the node's own PIDs.

Programs (`cuda/cuda.c`) connect to `driver.sock` and say what they take; a connection's end is
the process's end, however it came. Run it with the folder of `state.h` in FAKE_GPU_DIR.

Lines of a program, each answered by `ok` or a CUDA error number
(https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html, `CUresult`):

    attach <gpu> <kind>     it uses this GPU from now on; kind as in state.h
    open                    a context. Answered `ok <bytes that it takes>`
    use <bytes> <percent>   what it has of the GPU from now on
    info                    the memory. Answered `ok <free bytes> <total bytes>`
    close                   the context is no more
    xid <number>            it made the GPU report this
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

INVALID_VALUE = 1
OUT_OF_MEMORY = 2
DEVICE_UNAVAILABLE = 46
INVALID_DEVICE = 101
EXCLUSIVE_PROCESS = 3
PROHIBITED = 2


@dataclass
class Process:
    """What one process has of a GPU."""

    pid: int
    kind: str
    memory: int = 0
    sm: int = 0


class Driver:
    """All GPUs of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.gpus: dict[int, list[Process]] = {}

    def figure(self, gpu: int, key: str) -> int:
        for line in (self.folder / f"gpu-{gpu}").read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == key:
                return int(value)
        return 0

    def open(self, gpu: int, process: Process) -> int:
        """Make a context.

        EXCLUSIVE_PROCESS: "only one context is allowed per device, usable from multiple threads
        at a time" (`nvmlComputeMode_t`, https://docs.nvidia.com/deploy/nvml-api/); MPS's clients
        are the server's (https://docs.nvidia.com/deploy/mps/, "GPU Compute Modes").
        """
        if not (self.folder / f"gpu-{gpu}").exists():
            return INVALID_DEVICE
        with contextlib.suppress(FileNotFoundError):
            mode = int((self.folder / f"gpu-{gpu}.mode").read_text())
            if mode == PROHIBITED:
                return DEVICE_UNAVAILABLE
            alone = [p for p in self.gpus.get(gpu, ()) if p.kind != "M"]
            if mode == EXCLUSIVE_PROCESS and process.kind != "M" and alone:
                return DEVICE_UNAVAILABLE
        process.memory = 0 if process.kind == "S" else self.figure(gpu, "context")
        self.gpus.setdefault(gpu, []).append(process)
        error = self.use(gpu, process, process.memory, 0)
        if error:
            self.close(gpu, process)
        return error

    def use(self, gpu: int, process: Process, memory: int, sm: int) -> int:
        total = self.figure(gpu, "memory") - self.figure(gpu, "reserved")
        if sum(p.memory for p in self.gpus[gpu] if p is not process) + memory > total:
            return OUT_OF_MEMORY
        process.memory, process.sm = memory, sm
        self.write(gpu)
        return 0

    def close(self, gpu: int, process: Process) -> None:
        if process in self.gpus.get(gpu, ()):
            self.gpus[gpu].remove(process)
            self.write(gpu)

    def write(self, gpu: int) -> None:
        path = self.folder / f"gpu-{gpu}.processes"
        lines = [f"{p.pid} {p.memory} {p.sm} {p.kind}\n" for p in self.gpus[gpu]]
        path.with_suffix(".next").write_text("".join(lines))
        path.with_suffix(".next").replace(path)

    def info(self, gpu: int) -> str:
        """`cuMemGetInfo`: free and total bytes."""
        total = self.figure(gpu, "memory")
        used = self.figure(gpu, "reserved") + sum(p.memory for p in self.gpus[gpu])
        return f"ok {max(total - used, 0)} {total}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("socket")
        # struct ucred, unix(7): the PID is translated into our own PID namespace.
        pid, _, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        gpu, process = -1, Process(pid, "C")
        try:
            while line := (await reader.readline()).decode().split():
                error, answer = 0, "ok"
                match line:
                    case ["attach", number, kind]:
                        gpu, process.kind = int(number), kind
                    case ["open"]:
                        error = self.open(gpu, process)
                        answer = f"ok {process.memory}"
                    case ["use", memory, sm]:
                        error = self.use(gpu, process, int(memory), int(sm))
                    case ["info"]:
                        answer = self.info(gpu)
                    case ["close"]:
                        self.close(gpu, process)
                    case ["xid", number]:
                        with (self.folder / f"gpu-{gpu}.xids").open("a") as file:
                            file.write(f"{number}\n")
                    case _:
                        error = INVALID_VALUE
                writer.write(f"{error or answer}\n".encode())
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self.close(gpu, process)
            writer.close()


async def main(folder: Path) -> None:
    """Serve until SIGTERM."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    path = folder / "driver.sock"
    path.unlink(missing_ok=True)
    server = await asyncio.start_unix_server(Driver(folder).serve, path)
    path.chmod(0o666)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await stop.wait()
    server.close()


if __name__ == "__main__":
    asyncio.run(main(Path(os.environ["FAKE_GPU_DIR"])))
