"""What the lists of protocol 3 print.

https://docs.nvidia.com/deploy/mps/latest/mpsv3-interface.html names the columns;
fractioning-manager/mpsd/internal/mpsctl/control_test.go of kai-scheduler/gpu-fractioning shows
those of clients.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from gpus import gpu_of
from sm_partitions import chunks_of

if TYPE_CHECKING:
    from daemon_v3 import DaemonV3


def list_servers(daemon: DaemonV3, names: list[str], options: dict[str, str]) -> str:
    columns = ("NAME", "UID", "PID", "STATUS", "PIPE DIRECTORY", "ALLOWED DEVICES", "CONTEXTS")
    rows = (
        (n.name, n.uid, n.server.process.pid, daemon.status(n.server), n.directory, n.devices, "-")
        for n in daemon.named.values()
        if not names or n.name in names
    )
    return table(columns, rows, options)


def list_namespaces(daemon: DaemonV3, options: dict[str, str]) -> str:
    columns = ("NAME", "SERVER", "SERVER STATUS", "PINNED MEMORY LIMIT")
    rows = (
        (namespace.name, n.name, daemon.status(n.server), *namespace.row(), namespace.directory)
        for n in daemon.named.values()
        for namespace in n.namespaces.values()
        if options.get("server", n.name) == n.name
    )
    return table((*columns, "ACTIVE THREAD PERCENTAGE", "PRIORITY", "DIRECTORY"), rows, options)


def list_clients(daemon: DaemonV3, options: dict[str, str]) -> str:
    rows = (
        (c.pid, n.name, n.devices, f"{n.name}/{c.namespace} (0)", "program")
        for n in daemon.named.values()
        for c in n.server.clients.values()
        if options.get("server", n.name) == n.name
    )
    return table(("PID", "SERVER", "DEVICE", "MAWS NS", "CMD"), rows, options)


def list_devices(daemon: DaemonV3, options: dict[str, str]) -> str:
    columns = ("ORDINAL", "SERVER", "PCI ID", "DEVICE UUID", "NAME", "TOTAL SMS")
    rows = []
    for n in daemon.named.values():
        gpu = gpu_of(daemon.folder, n.devices or "0")
        if options.get("server", n.name) == n.name:
            sms = gpu.get("sms", "108")
            rows.append((0, n.name, "0000:01:00.0", gpu["uuid"], gpu["name"], sms))
            rows[-1] += (chunks_of(gpu), "-")
    return table((*columns, "TOTAL CHUNKS", "ATTRIBUTES"), rows, options)


def list_partitions(daemon: DaemonV3, options: dict[str, str], gpu: dict[str, str]) -> str:
    columns = ("SERVER", "DEVICE", "NAME", "CHUNKS", "SM-COUNT", "INCLUDE-REMAINDER", "STATUS")
    rows: list[tuple[object, ...]] = []
    for n in daemon.named.values():
        if options.get("server", n.name) == n.name:
            for p in n.partitions:
                rows.append((n.name, p.device, p.name, p.chunks, p.sms, "false", "created"))
                rows[-1] += (p.code,)
            free = n.partitions.free(gpu)
            if free:
                rows.append((n.name, gpu["uuid"], "-", free, "-", "-", "unallocated", "-"))
    return table((*columns, "VISIBLE-UUID"), rows, options)


def table(columns: Iterable[str], rows: Iterable[Iterable[object]], options: dict[str, str]) -> str:
    """Format a list. A table cuts long cells (`kai`, mpsctl/control_test.go); CSV does not."""
    form = options.get("format", "table").split(",")
    lines = [] if "noheader" in form else [list(columns)]
    lines += [[str(cell) for cell in row] for row in rows]
    if form[0] == "csv":
        return "".join(",".join(line) + "\n" for line in lines)
    cut = ((c if len(c) < 7 else f"{c[:3]}..." for c in line) for line in lines)
    return "".join(" ".join(f"{c:8}" for c in line) + "\n" for line in cut)
