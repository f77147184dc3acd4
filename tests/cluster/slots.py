"""Places for clusters on this machine, and what is left of one whose test run was killed.

A place has a number: its addresses, its folder, its cgroup and its link are named after it. Who
holds the lock on its file has the place, and the kernel takes the lock from a process that ends
in any way, so what a place holds while nobody holds its lock may be removed.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.polling import TIMEOUT, holds_within

__all__ = ["NUMBERS", "Slot", "process_start", "taken_slot"]

NUMBERS = range(213, 217)
"""Second number of a cluster's addresses: 10.213.0.0/16 and the next ones, of RFC 1918."""

CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Slot:
    """One place: the names and addresses that go with its number."""

    number: int

    @property
    def folder(self) -> Path:
        """Where all its files are."""
        return Path(tempfile.gettempdir()) / f"partita-cluster-{self.number}"

    @property
    def cgroup(self) -> str:
        """Name of the cgroup (in each hierarchy) that holds its Pods."""
        return f"partita-test-{self.number}"

    @property
    def link(self) -> str:
        """Name of the link from the machine to the node."""
        return f"partita-{self.number}"

    @property
    def services(self) -> str:
        """Addresses of Services; the first one is the API server's."""
        return f"10.{self.number}.0.0/24"

    @property
    def api_server(self) -> str:
        """Address of the API server, for Pods and for the machine."""
        return f"10.{self.number}.0.1"

    @property
    def pods(self) -> str:
        """Addresses of Pods."""
        return f"10.{self.number}.1.0/24"

    @property
    def machine(self) -> str:
        """Address of the machine on the link."""
        return f"10.{self.number}.2.1"

    @property
    def node(self) -> str:
        """Address of the node on the link."""
        return f"10.{self.number}.2.2"

    def note(self, pid: int) -> None:
        """Write down the node's process 1, for whoever has to end it."""
        written = self.folder / "process.new"
        written.write_text(json.dumps([pid, process_start(pid)]))
        written.replace(self.folder / "process.json")

    def make_cgroup(self) -> None:
        """Make the cgroup in every hierarchy that has controllers.

        cpuset of cgroup v1 takes no process before it has CPUs and memory nodes.
        """
        if (CGROUPS / "cgroup.controllers").exists():
            (CGROUPS / "cgroup.subtree_control").write_text("+cpuset +cpu +memory +pids")
        for hierarchy in hierarchies():
            cgroup = hierarchy / self.cgroup
            cgroup.mkdir(exist_ok=True)
            for name in ("cpuset.cpus", "cpuset.mems"):
                if (cgroup / name).exists() and (hierarchy / "cgroup.sane_behavior").exists():
                    (cgroup / name).write_text((hierarchy / name).read_text())

    def clear(self) -> None:
        """End the node's processes and remove all that it had; only for who holds the lock."""
        note = self.folder / "process.json"
        if note.exists():
            pid, start = json.loads(note.read_text())
            if process_start(pid) == start:
                os.kill(pid, signal.SIGKILL)
            # It is the last of its namespace to go.
            if not holds_within(lambda: process_start(pid) != start, TIMEOUT):
                raise RuntimeError(f"Process {pid}, the node of {self.folder}, does not end.")
        for hierarchy in hierarchies():
            remove_cgroup(hierarchy / self.cgroup)
        if Path(f"/sys/class/net/{self.link}").exists():
            subprocess.run(["ip", "link", "delete", self.link], check=False, capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.folder.exists():
            raise RuntimeError(f"{self.folder} cannot be removed: see what is mounted there.")

    def processes(self) -> list[int]:
        """Return the processes of its Pods, by their cgroup."""
        return [
            int(pid)
            for hierarchy in hierarchies()
            for path in (hierarchy / self.cgroup).rglob("cgroup.procs")
            for pid in path.read_text().split()
        ]


def hierarchies() -> list[Path]:
    """Return where the cgroup hierarchies of this machine are mounted: one under v2."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    return sorted(path.parent for path in CGROUPS.glob("*/cgroup.procs"))


def remove_cgroup(cgroup: Path) -> None:
    """Remove a cgroup and those below it; the kernel's files in them need no removing."""
    if cgroup.is_dir():
        for inner in cgroup.iterdir():
            if inner.is_dir():
                remove_cgroup(inner)
        cgroup.rmdir()


def process_start(pid: int) -> int | None:
    """Return when a process began, in the kernel's ticks, or None where there is none.

    Number and start together name a process; a number alone may by now be a stranger's.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == "Z" else int(fields[19])


@contextmanager
def taken_slot() -> Iterator[Slot]:
    """Take a free place, clear what is left in all free ones, and clear it again at the end.

    Raises
    ------
    RuntimeError
        Every place is taken.
    """
    locks = []
    try:
        for number in NUMBERS:
            slot = Slot(number)
            lock = slot.folder.with_suffix(".lock").open("w")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.close()
                continue
            locks.append((slot, lock))
        for slot, _ in locks:
            slot.clear()
        if not locks:
            raise RuntimeError(f"{len(NUMBERS)} test clusters run on this machine already.")
        for _, lock in locks[1:]:
            lock.close()
        mine = locks[0][0]
        mine.folder.mkdir()
        try:
            yield mine
        finally:
            mine.clear()
    finally:
        for _, lock in locks:
            lock.close()
