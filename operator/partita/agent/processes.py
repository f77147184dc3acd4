"""From a process on the GPU to the Pod that it runs in, by its cgroup."""

import re
from pathlib import Path
from typing import Final

__all__ = ["PodsOfProcesses", "pod_uid"]

_POD: Final = re.compile(
    # cgroupfs: .../kubepods/burstable/pod<uid>/..., systemd: ...-pod<uid with _>.slice/...
    r"(?:^|[/-])pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12})"
    # A static Pod's UID is a hash.
    r"(?:[./]|$)|(?:^|[/-])pod([0-9a-f]{32})(?:[./]|$)"
)
"""The names kubelet gives: pkg/kubelet/cm/pod_container_manager_linux.go, `podCgroupNamePrefix`,
and `ToSystemd` in cgroup_manager_linux.go, which turns hyphens into underscores."""


def pod_uid(cgroup: str) -> str | None:
    """Read the Pod's UID out of `/proc/<pid>/cgroup`; None for a process of no Pod.

    Parameters
    ----------
    cgroup
        Lines of `hierarchy:controllers:path`: one for each hierarchy of cgroup v1, one alone
        (`0::`) of v2 (cgroups(7), "/proc files"). On a node with both, only some may name the Pod.
    """
    for line in cgroup.splitlines():
        path = line.partition(":")[2].partition(":")[2]
        # Pods may be nested, as in a node that is a Pod itself: the innermost one is it.
        for match in reversed(list(_POD.finditer(path))):
            return (match[1] or match[2]).replace("_", "-")
    return None


class PodsOfProcesses:
    """Knows the Pod of each process that was asked for, until it is gone.

    A PID is used anew in time, so what is no longer on the GPU is forgotten.

    Parameters
    ----------
    proc
        Where the node's processes are.
    """

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._known: dict[int, str | None] = {}

    def of(self, pids: set[int]) -> dict[int, str | None]:
        """Return the Pod's UID of each of these; None where there is none."""
        known = self._known
        self._known = {pid: known[pid] if pid in known else self._read(pid) for pid in pids}
        return self._known

    def _read(self, pid: int) -> str | None:
        try:
            return pod_uid((self._proc / str(pid) / "cgroup").read_text())
        except OSError:
            return None
