"""What a machine must have to run a cluster, and what to do where it has not."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["missing", "plugin_folder"]

PLUGIN_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
"""Where Debian and where everybody else keeps the CNI plugins."""

TOOLS = {
    "runc": "runc",
    "gcc": "gcc libc6-dev",
    "buildah": "buildah",
    "busybox": "busybox-static",
    "debootstrap": "debootstrap",
    "ip": "iproute2",
    "mount": "mount",
    "nsenter": "util-linux",
    "unshare": "util-linux",
}
"""Commands and the Debian packages of each."""

CONTROLLERS = frozenset({"cpu", "cpuset", "memory", "pids"})
"""What a kubelet limits by cgroup."""


def missing() -> list[str]:
    """Return what this machine lacks, each with what to do; empty where nothing is."""
    if sys.platform != "linux":
        return ["Linux: a kubelet and containerd run on no other system"]
    lacking = [*_rights(), *_kernel()]
    packages = sorted({package for tool, package in TOOLS.items() if not shutil.which(tool)})
    if plugin_folder() is None:
        packages.append("containernetworking-plugins")
    if packages:
        lacking.append(
            f"{', '.join(packages)}: apt-get install --no-install-recommends {' '.join(packages)}"
        )
    return lacking


def plugin_folder() -> Path | None:
    """Return where the CNI plugins are that the node's network needs, or None."""
    needed = ("bridge", "host-local", "loopback")
    found = (f for f in PLUGIN_FOLDERS if all((f / name).exists() for name in needed))
    return next(found, None)


def _rights() -> Iterator[str]:
    if os.geteuid() != 0:
        yield "root: containers, mounts and links cannot be made without; run as root"
        return
    try:
        # Asked of the kernel itself: within a container, root may have been denied it.
        done = os.spawnlp(os.P_WAIT, "unshare", "unshare", "--mount", "--net", "--pid", "true")
    except OSError:
        return  # told as a missing tool
    if done not in {0, 127}:
        yield "namespaces: this root may not make any; run outside of a container, or in one with --privileged"


def _kernel() -> Iterator[str]:
    if "overlay" not in Path("/proc/filesystems").read_text():
        yield "overlayfs: modprobe overlay"
    groups = Path("/sys/fs/cgroup")
    unified = groups / "cgroup.controllers"
    if unified.exists():
        found, where = set(unified.read_text().split()), f"in {unified}"
    else:
        found, where = (
            {path.parent.name for path in groups.glob("*/cgroup.procs")},
            f"below {groups}",
        )
        found = {name for names in found for name in names.split(",")}
    if lacking := CONTROLLERS - found:
        yield f"the cgroup controllers {', '.join(sorted(lacking))} {where}: mount them"
    elif not os.access(groups, os.W_OK):
        yield f"writable cgroups: {groups} is read-only here"
