"""A tree of cgroups v2 made of plain folders, and which of them a process is in.

Files are those of https://docs.kernel.org/admin-guide/cgroup-v2.html: `cgroup.controllers`,
`cgroup.procs`, and with the controller dmem ("DMEM Interface Files") `dmem.capacity` in the root,
`dmem.max`, `dmem.min` and `dmem.current` below it. A process is in the cgroup whose `cgroup.procs`
has it or its nearest ancestor, as children are born into their parent's cgroup: whatever a program
does to its environment or by fork and exec, it stays there. A process that no folder has is where
`/proc/<pid>/cgroup` puts it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

CONTROLLERS = "cpuset cpu io memory pids misc"


def device_key(gpu: int) -> str:
    """Name of a GPU's memory in the files of dmem: by PCI address ("Multi-GPU", and the guide
    "Per-GPU Compute and Memory Limits with MPS" of ai-dynamo/dynamo).
    """
    return f"nvidia/00000000:{gpu + 1:02x}:00.0/vidmem"


class CgroupTree:
    """The folder that stands for `/sys/fs/cgroup`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def exists(self) -> bool:
        """Whether the node has cgroup v2."""
        return (self.root / "cgroup.controllers").exists()

    @property
    def has_dmem(self) -> bool:
        return (self.root / "dmem.capacity").exists()

    def mount(self, capacities: Mapping[int, int], *, dmem: bool) -> None:
        """Make the root, for GPUs with so many bytes; cgroups that are there lose their limits."""
        self.root.mkdir(exist_ok=True)
        for file in self.root.rglob("dmem.*"):
            file.unlink()
        more = " dmem" if dmem else ""
        (self.root / "cgroup.controllers").write_text(f"{CONTROLLERS}{more}\n")
        if dmem:
            lines = [f"{device_key(gpu)} {size}\n" for gpu, size in capacities.items()]
            (self.root / "dmem.capacity").write_text("".join(lines))
            for file in self.root.rglob("cgroup.procs"):
                self._enable(file.parent)

    def _devices(self) -> list[str]:
        lines = (self.root / "dmem.capacity").read_text().splitlines()
        return [line.partition(" ")[0] for line in lines]

    def make(self, path: str) -> Path:
        """Make a cgroup and those above it."""
        group = self.root
        for name in Path(path).parts:
            group /= name
            if group.exists():
                continue
            group.mkdir()
            (group / "cgroup.procs").touch()
            if self.has_dmem:
                self._enable(group)
        return group

    def _enable(self, group: Path) -> None:
        for file, first in {"max": "max", "min": "0", "current": "0"}.items():
            lines = [f"{device} {first}\n" for device in self._devices()]
            (group / f"dmem.{file}").write_text("".join(lines))

    def remove(self, group: Path) -> None:
        """Remove a cgroup, as the runtime does when a container ends: nobody tells the driver."""
        shutil.rmtree(group, ignore_errors=True)

    def find(self, inode: int) -> Path | None:
        """Find a cgroup by its folder's inode: its path may be another in the caller's mounts."""
        for folder, _, _ in os.walk(self.root):
            with contextlib.suppress(FileNotFoundError):
                if Path(folder).stat().st_ino == inode:
                    return Path(folder)
        return None

    def of(self, pid: int) -> Path:
        """Return the cgroup of a process; the root where nothing says another."""
        if not self.exists:
            return self.root
        members = self._members()
        ancestor = pid
        while ancestor > 1:
            if ancestor in members:
                return members[ancestor]
            ancestor = parent_of(ancestor)
        return self._by_kernel(pid)

    def processes(self, group: Path) -> list[int]:
        """Return the processes that are in a cgroup now."""
        running = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        return [pid for pid in running if self.of(pid) == group]

    def _members(self) -> dict[int, Path]:
        members = {}
        for folder, _, _ in os.walk(self.root):
            with contextlib.suppress(FileNotFoundError):
                for pid in (Path(folder) / "cgroup.procs").read_text().split():
                    members[int(pid)] = Path(folder)
        return members

    def _by_kernel(self, pid: int) -> Path:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
                if line.startswith("0::/"):
                    group = self.root / line.removeprefix("0::/")
                    return next(g for g in (group, *group.parents) if g.is_dir())
        return self.root

    def allow(self, group: Path, uuids: Sequence[str]) -> None:
        """Let the programs of a container use only these GPUs, as its device files do."""
        (group / "gpus").write_text("".join(f"{uuid}\n" for uuid in uuids))

    def allows(self, group: Path, uuid: str) -> bool:
        """Return whether programs may use a GPU: any where no cgroup says which."""
        files = [level / "gpus" for level in self.chain(group)]
        return all(uuid in file.read_text().split() for file in files if file.exists())

    def chain(self, group: Path) -> list[Path]:
        """Return a cgroup and those above it, without the root, which has no limits."""
        chain = [group, *group.parents]
        return chain[: chain.index(self.root)]


def parent_of(pid: int) -> int:
    """`/proc/<pid>/stat`, the 4th field (proc(5)); 0 for a process that has ended."""
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def read_value(file: Path, key: str) -> int | None:
    """Read the line of a device; None for `max`, and where it has none."""
    value = value_of(file, key)
    return None if value in {"", "max"} else int(value)


def write_value(file: Path, key: str, value: int | None) -> None:
    """Write the line of a device and leave the others."""
    lines = [line for line in file.read_text().splitlines() if not line.startswith(f"{key} ")]
    lines.append(f"{key} {'max' if value is None else value}")
    next_file = file.with_name(f"{file.name}.next")
    next_file.write_text("\n".join(sorted(lines)) + "\n")
    next_file.replace(file)


def value_of(file: Path, key: str) -> str:
    """Read a value of a `key value` file; empty where there is none."""
    for line in file.read_text().splitlines():
        name, _, value = line.partition(" ")
        if name == key:
            return value
    return ""
