"""Finds the Pod and the container of a process by its cgroup."""

import re
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = [
    "PodsOfProcesses",
    "ProcessIdentity",
    "caught_signals",
    "container_id",
    "pod_uid",
    "started",
]

_POD: Final = re.compile(
    # cgroupfs: .../kubepods/burstable/pod<uid>/..., systemd: ...-pod<uid with _>.slice/...
    r"(?:^|[/-])pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12})"
    # A static Pod's UID is a hash.
    r"(?:[./]|$)|(?:^|[/-])pod([0-9a-f]{32})(?:[./]|$)"
)
"""The names of cgroups that kubelet creates: pkg/kubelet/cm/pod_container_manager_linux.go,
`podCgroupNamePrefix`, and `ToSystemd` in cgroup_manager_linux.go, which replaces hyphens by
underscores."""


def pod_uid(cgroup: str) -> str | None:
    """Parse the Pod's UID from `/proc/<pid>/cgroup`; None for a process outside Pods.

    Parameters
    ----------
    cgroup
        Lines of `hierarchy:controllers:path`: one for each hierarchy of cgroup v1, a single one
        (`0::`) for v2 (cgroups(7), "/proc files"). On a node with both, only some lines may contain
        the Pod.
    """
    for line in cgroup.splitlines():
        path = line.partition(":")[2].partition(":")[2]
        # Pods may be nested if the node itself is a Pod: use the innermost one.
        for match in reversed(list(_POD.finditer(path))):
            return (match[1] or match[2]).replace("_", "-")
    return None


_CONTAINER: Final = re.compile(r"([0-9a-f]{64})(?:\.scope)?(?:/|$)")
"""The ID of a container: containerd and CRI-O use it as the name of the cgroup, with a prefix and
`.scope` if systemd manages cgroups."""


def container_id(cgroup: str) -> str:
    """Parse the ID of the container from `/proc/<pid>/cgroup`; empty if there is none."""
    found = _CONTAINER.findall(cgroup)
    return found[-1] if found else ""


def started(stat: str) -> int | None:
    """Parse when a process started from `/proc/<pid>/stat`, in clock ticks since the boot.

    The 22nd field; the second one, the program's name, may hold spaces and parentheses (proc(5)).
    """
    fields = stat.rpartition(")")[2].split()
    return int(fields[19]) if len(fields) > 19 and fields[19].isdigit() else None


def caught_signals(status: str) -> set[int]:
    """Parse from `/proc/<pid>/status` which signals a process handles: the mask SigCgt (proc(5)).

    Bit 0 is signal 1.
    """
    for line in status.splitlines():
        name, _, mask = line.partition(":")
        if name == "SigCgt":
            bits = int(mask, 16)
            return {number for number in range(1, 65) if bits >> (number - 1) & 1}
    return set()


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """Identifies a process even if its PID is reused."""

    pod: str | None
    """UID of its Pod; None outside Pods."""
    container: str
    """ID of its container; empty if it is unknown."""
    started: int | None
    """Start in clock ticks since the boot; None if it cannot be read."""


class PodsOfProcesses:
    """Finds the Pods of processes, and caches them while the processes use the GPU.

    PIDs are reused, so a process that is missing in the next call is removed from the cache.

    Parameters
    ----------
    proc
        The node's `/proc`.
    """

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._known: dict[int, ProcessIdentity] = {}

    def of(self, pids: set[int]) -> dict[int, str | None]:
        """Return the UID of the Pod of each process; None outside Pods."""
        known = self._known
        self._known = {pid: known[pid] if pid in known else self.identity(pid) for pid in pids}
        return {pid: identity.pod for pid, identity in self._known.items()}

    def known(self, pid: int) -> ProcessIdentity:
        """Return the identity of a process whose Pod `of` returned."""
        return self._known[pid]

    def is_same(self, pid: int) -> bool:
        """Return whether a PID still belongs to the process whose Pod `of` returned."""
        return pid in self._known and self.identity(pid) == self._known[pid]

    def identity(self, pid: int) -> ProcessIdentity:
        """Return the identity of the process that has this PID now."""
        cgroup = self._read(pid, "cgroup")
        return ProcessIdentity(
            pod_uid(cgroup), container_id(cgroup), started(self._read(pid, "stat"))
        )

    def catches(self, pid: int, number: signal.Signals) -> bool:
        """Return whether a process has a handler for a signal."""
        return number in caught_signals(self._read(pid, "status"))

    def _read(self, pid: int, file: str) -> str:
        try:
            return (self._proc / str(pid) / file).read_text(errors="replace")
        except OSError:
            return ""
