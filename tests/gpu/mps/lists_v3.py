"""What the lists of protocol 3 print, as CSV without a header.

https://docs.nvidia.com/deploy/mps/latest/mpsv3-interface.html names the columns;
fractioning-manager/mpsd/internal/mpsctl/control_test.go of kai-scheduler/gpu-fractioning shows
those of clients. The tables that are printed without `--format` cut long cells: nothing of Partita
reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from gpus import gpu_of
from servers_v3 import CommandError, NamedServer
from sm_partitions import chunks_of

if TYPE_CHECKING:
    from daemon_v3 import DaemonV3


def list_servers(daemon: DaemonV3, options: dict[str, str]) -> str:
    rows = (
        (n.name, n.uid, n.server.process.pid, daemon.status(n.server), n.directory, n.devices, "-")
        for n in daemon.named.values()
    )
    return csv(rows, options)


def list_namespaces(daemon: DaemonV3, options: dict[str, str]) -> str:
    rows = (
        (namespace.name, n.name, daemon.status(n.server), *namespace.row(), namespace.directory)
        for n in asked(daemon, options)
        for namespace in n.namespaces.values()
    )
    return csv(rows, options)


def list_clients(daemon: DaemonV3, options: dict[str, str]) -> str:
    rows = (
        (c.pid, n.name, n.devices, f"{n.name}/{c.namespace} (0)", "program")
        for n in asked(daemon, options)
        for c in n.server.clients.values()
    )
    return csv(rows, options)


def list_devices(daemon: DaemonV3, options: dict[str, str]) -> str:
    rows = []
    for n in asked(daemon, options):
        gpu = gpu_of(daemon.folder, n.devices or "0")
        sms = gpu.get("sms", "108")
        rows.append((0, n.name, "0000:01:00.0", gpu["uuid"], gpu["name"], sms))
        rows[-1] += (chunks_of(gpu), "-")
    return csv(rows, options)


def list_partitions(daemon: DaemonV3, options: dict[str, str], gpu: dict[str, str]) -> str:
    rows: list[tuple[object, ...]] = []
    for n in asked(daemon, options):
        rows += [
            (n.name, p.device, p.name, p.chunks, p.sms, "false", "created", p.code)
            for p in n.partitions
        ]
        free = n.partitions.free(gpu)
        if free:
            rows.append((n.name, gpu["uuid"], "-", free, "-", "-", "unallocated", "-"))
    return csv(rows, options)


def asked(daemon: DaemonV3, options: dict[str, str]) -> Iterator[NamedServer]:
    """The servers that a list is about."""
    return (n for n in daemon.named.values() if options.get("server", n.name) == n.name)


def csv(rows: Iterable[Iterable[object]], options: dict[str, str]) -> str:
    if options.get("format") != "csv,noheader":
        raise CommandError("only --format=csv,noheader is implemented here")
    return "".join(",".join(map(str, row)) + "\n" for row in rows)
