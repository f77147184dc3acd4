"""What the fake MPS daemons read of the fake GPUs, and of who is connected."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from pathlib import Path


def gpu_of(folder: Path, device: str) -> dict[str, str]:
    """The figures of a GPU, by its UUID or by ordinal 0; empty where there is none."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    for number in range(16):
        with contextlib.suppress(FileNotFoundError):
            lines = (folder / f"gpu-{number}").read_text().splitlines()
            found = dict(line.split(" ", 1) for line in lines)
            if device in {found["uuid"], str(number)} or (
                device == "0" and visible == found["uuid"]
            ):
                return found
    return {}


def driver_of(folder: Path) -> int:
    """The major version of the driver; 0 where there is none."""
    try:
        text = (folder / "driver").read_text()
    except FileNotFoundError:
        return 0
    return int(text.split()[1].partition(".")[0])


def peer_of(writer: asyncio.StreamWriter) -> tuple[int, int]:
    """PID, as we see it, and UID of who is connected."""
    peer = writer.get_extra_info("socket")
    pid, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid, uid


async def end_process(folder: Path, pid: int, error: int) -> None:
    """Let the driver end a process; return when it has nothing in flight."""
    reader, writer = await asyncio.open_unix_connection(folder / "driver.sock")
    writer.write(f"end {pid} {error}\n".encode())
    await reader.readline()
    writer.close()
