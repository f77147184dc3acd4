"""The named servers and namespaces of the fake MPS daemon with protocol 3.

`interface`, `guide` and `kai` are explained in `daemon_v3.py`.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from pathlib import Path

from daemon import Server
from sm_partitions import SMPartitions

NAME = re.compile(r"[a-z0-9_]{1,64}")
"""`interface`, "CLI Command Structure"."""
SIZE = re.compile(r"(\d+)([KMG])")
KEYS = {"pinned_memory_limit", "active_thread_percentage", "client_priority"}


class CommandError(Exception):
    """A command is refused: exit status 1."""


@dataclass
class Namespace:
    """Limits of the clients that connect through its socket."""

    name: str
    directory: Path
    # `guide`: a named namespace inherits nothing; without limits it gives the whole GPU.
    limits: dict[str, str] = field(default_factory=dict)
    sockets: list[asyncio.Server] = field(default_factory=list)

    @property
    def mebibytes(self) -> int:
        """Limit of a client; 0 for none."""
        found = SIZE.fullmatch(self.limits.get("pinned-memory-limit", ""))
        if found is None:
            return 0
        return max(1, int(found[1]) * {"K": 1, "M": 1 << 10, "G": 1 << 20}[found[2]] >> 10)

    @property
    def percentage(self) -> float:
        return float(self.limits.get("active-thread-percentage", 100))

    def row(self) -> tuple[str, str, str]:
        """Columns of `namespace list` ("guide", "Confirm the server came up")."""
        percentage = self.limits.get("active-thread-percentage")
        return (
            self.limits.get("pinned-memory-limit", "-"),
            f"{float(percentage):.2f}" if percentage else "-",
            self.limits.get("client-priority", "0"),
        )


@dataclass
class NamedServer:
    """A server by its name; it has no process once that has exited."""

    name: str
    uid: int
    directory: Path
    devices: str
    server: Server
    namespaces: dict[str, Namespace] = field(default_factory=dict)
    partitions: SMPartitions = field(default_factory=SMPartitions)


def check_name(name: str) -> None:
    if NAME.fullmatch(name) is None:
        raise CommandError(
            f"Invalid name '{name}': lowercase letters, digits and underscores, up to 64"
        )


def options_of(limits: dict) -> dict[str, str]:
    """Keys of the file are those of the command line with underscores."""
    return {key.replace("_", "-"): str(value) for key, value in limits.items() if key in KEYS}
