"""The node's tree of cgroups v2: which cgroups Pods and their containers have.

kubelet and the container runtime name them after the Pod and the container, with both cgroup
drivers:

- systemd: `kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid with _>.slice/
  cri-containerd-<id>.scope`
- cgroupfs: `kubepods/burstable/pod<uid>/<id>`

So a container's cgroup is found by the Pod's UID and the container's ID in the Pod's status. The
path in `/proc/<pid>/cgroup` is not needed: in a cgroup namespace of its own, as the agent's
container has, it is relative to the reader's cgroup (cgroup_namespaces(7)).
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from partita.agent.attribution.processes import pod_uid

__all__ = ["CGROUPS", "CgroupTree", "names_below"]

CGROUPS: Final = Path("/sys/fs/cgroup")
"""Where the node's tree is mounted. The driver requires this path as well
(https://docs.nvidia.com/deploy/mps/mpsv3-memory-partitioning.html)."""
_ALL_PODS: Final = "kubepods"
"""kubelet's cgroup of all Pods, below its option `cgroupRoot` (pkg/kubelet/cm/
node_container_manager_linux.go, `defaultNodeAllocatableCgroupName`)."""
_DEPTH: Final = 6
"""Most levels from the root to the cgroup of all Pods. An assumption: usually it is one, and a node
that is itself a container has a few more."""
_CONMON: Final = "conmon-"
"""CRI-O may put its monitor of a container beside it, as `crio-conmon-<id>`: its `conmon_cgroup` is
`pod` on OpenShift (https://github.com/openshift/machine-config-operator/pull/1296)."""
_PROCESSES: Final = "cgroup.procs"


class CgroupTree:
    """The tree of cgroups.

    Parameters
    ----------
    root
        Where it is mounted.
    """

    def __init__(self, root: Path = CGROUPS) -> None:
        self.root = root
        self._pods: dict[str, Path] = {}

    @property
    def version(self) -> int:
        """Version of the cgroups, 1 or 2.

        The root of version 2 has this file
        (https://docs.kernel.org/admin-guide/cgroup-v2.html, "Core Interface Files").
        """
        return 2 if (self.root / "cgroup.controllers").exists() else 1

    @property
    def has_dmem(self) -> bool:
        """Whether the driver has registered its memory with the kernel's controller dmem."""
        try:
            regions = (self.root / "dmem.capacity").read_text().splitlines()
        except OSError:
            return False
        return any(region.startswith("nvidia/") for region in regions)

    def pod(self, uid: str) -> Path | None:
        """Return the cgroup of a Pod; None if it has none yet or no more."""
        known = self._pods.get(uid)
        if known is None or not known.is_dir():
            self._pods = {_uid(path) or "": path for path in self.pods()}
        return self._pods.get(uid)

    def pods(self) -> Iterator[Path]:
        """Yield the cgroups of all Pods."""
        for everything in self._search(self.root, 0):
            for child in children(everything):
                # Those of QoS classes are between.
                yield from [child] if _is_pod(child) else filter(_is_pod, children(child))

    def _search(self, folder: Path, depth: int) -> Iterator[Path]:
        """Yield each cgroup of all Pods: a node that is a Pod itself has several."""
        for child in children(folder):
            if child.name == _ALL_PODS or child.name.endswith(f"{_ALL_PODS}.slice"):
                yield child
            elif depth < _DEPTH:
                yield from self._search(child, depth + 1)

    def container(self, pod: str, container: str) -> Path | None:
        """Return the cgroup of a container's processes; None if it does not exist.

        Some runtimes put the processes into a cgroup below the container's (crun, annotation
        `run.oci.systemd.subgroup`), and the container toolkit sets limits where the first process
        is.

        Parameters
        ----------
        pod
            UID of its Pod.
        container
            Its ID, without the runtime's prefix.
        """
        folder = self.pod(pod)
        for child in children(folder) if folder is not None else ():
            if container in child.name and _CONMON not in child.name:
                return _with_processes(child) or child
        return None


def children(folder: Path) -> list[Path]:
    """Return the cgroups directly below one; empty if it no longer exists."""
    return [folder / name for name in sorted(names_below(folder))]


def names_below(folder: Path) -> list[str]:
    """Return the names of the cgroups directly below one, without the cost of paths."""
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _uid(cgroup: Path) -> str | None:
    return pod_uid(f"0::/{cgroup.name}")


def _is_pod(cgroup: Path) -> bool:
    return _uid(cgroup) is not None


def _with_processes(folder: Path) -> Path | None:
    """Return the first cgroup with processes: this one, or one below it."""
    try:
        if (folder / _PROCESSES).read_text().strip():
            return folder
    except OSError:
        return None
    found = (_with_processes(child) for child in children(folder))
    return next((path for path in found if path is not None), None)
