"""The node's cgroups v2: plain folders with the files of dmem, beside the kernel's own.

No kernel of a test machine has the controller dmem, so the files are in the folders of
`gpu.driver.cgroups`, by the same names as the kernel's cgroups. Processes are in the kernel's: on a
machine with cgroup v1 containers get one in its hierarchy of v2, which has no controllers and which
runc leaves alone.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpu.driver.cgroups import CgroupTree

__all__ = ["NodeCgroups"]

UNIFIED = Path("/sys/fs/cgroup/unified")
"""Where systemd and others mount the hierarchy of v2 beside those of v1."""


class NodeCgroups:
    """The cgroups of containers; there are none before a test mounts the folders."""

    def __init__(self, root: Path) -> None:
        self._tree = CgroupTree(root)

    def add(self, config: dict[str, Any], gpus: Sequence[str]) -> None:
        """Make a container's cgroup and enter it: what runc starts is born there.

        A Pod that mounts the host's cgroups gets the folders.

        Parameters
        ----------
        gpus
            UUIDs of the GPUs whose device files the container has, or `all`.
        """
        if not self._tree.exists:
            return
        for mount in config["mounts"]:
            if mount["source"] == "/sys/fs/cgroup":
                mount["source"] = str(self._tree.root)
        group = self._tree.make(config["linux"]["cgroupsPath"].strip("/"))
        if "all" not in gpus:
            self._tree.allow(group, gpus)
        self._enter(group)

    def enter(self, container: str) -> None:
        """Enter a container's cgroup, for a program that is run in it later."""
        for group in self._of(container):
            self._enter(group)

    def remove(self, container: str) -> None:
        """Remove a container's cgroup, and its Pod's with the last one."""
        for group in self._of(container):
            self._tree.remove(group)
            pod = group.parent
            if not any(entry.is_dir() for entry in pod.iterdir()):
                self._tree.remove(pod)
            for folder in (group, pod):
                with contextlib.suppress(OSError):
                    self._real(folder).rmdir()

    def _of(self, container: str) -> list[Path]:
        return [path for path in self._tree.root.rglob(container) if path.is_dir()]

    def _real(self, group: Path) -> Path:
        return UNIFIED / group.relative_to(self._tree.root)

    def _enter(self, group: Path) -> None:
        if UNIFIED.exists():
            real = self._real(group)
            real.mkdir(parents=True, exist_ok=True)
            (real / "cgroup.procs").write_text(str(os.getpid()))
