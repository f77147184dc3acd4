"""A node in namespaces of its own: where containerd, kubelet and all Pods run.

Its file systems, processes, host name and network are apart from the machine's, so nothing that a
kubelet does there (mounts, links, sysctls, ``/var/lib/kubelet``) is done to the machine, and a
kubelet of the machine's own is not in the way. See `cluster.init` for what runs inside.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from apiserver import tied_process
from apiserver.processes import NotReadyError
from cluster import init
from cluster.slots import Slot
from support.polling import TIMEOUT, holds_within

__all__ = ["Node"]

STOP_SECONDS = 20


class Node:
    """The namespaces of one slot, with process 1 and a link to the machine.

    For use as a context manager, from a thread that outlives it: to the kernel the parent that
    everything here ends with is the thread.
    """

    def __init__(self, slot: Slot) -> None:
        self.slot = slot
        self.pid = 0
        self._process: subprocess.Popen[str] | None = None
        self._servers: dict[str, tuple[Sequence[str], Callable[[], bool]]] = {}

    def __enter__(self) -> Self:
        command = [
            *("unshare", "--mount", "--net", "--ipc", "--uts"),
            *("--pid", "--fork", "--kill-child", "--mount-proc"),
            *(sys.executable, "-S", init.__file__, str(self.slot.folder)),
        ]
        with (self.slot.folder / "node.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-S", tied_process.__file__, str(os.getpid()), *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        try:
            self._read()
            outer = self._process.pid
            self.pid = int(Path(f"/proc/{outer}/task/{outer}/children").read_text())
            self.slot.note(self.pid)
            self._link()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """End all that runs inside; once more does no harm."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        process.kill()  # and with it process 1, and with that all others
        process.wait()
        process.stdin.close()
        process.stdout.close()

    def start(
        self,
        name: str,
        command: Sequence[str],
        ready: Callable[[], bool],
        *,
        seconds: float = TIMEOUT,
    ) -> None:
        """Start a server inside and return when ``ready()`` holds.

        Raises
        ------
        NotReadyError
            It ended, or was not ready within ``seconds``.
        """
        self._servers[name] = (command, ready)
        self._ask("start", name, command=command, log=str(self.log(name)))
        if holds_within(lambda: not self.runs(name) or ready(), seconds) and self.runs(name):
            return
        code = self._ask("look", name)["code"]
        how = f"was not ready within {seconds:g} s" if code is None else f"ended with code {code}"
        raise NotReadyError(f"{name} {how}. The end of its log:\n{self.tail(name)}")

    def stop(self, name: str, *, how: signal.Signals = signal.SIGTERM) -> None:
        """Stop a server; its children go on."""
        self._ask("signal", name, signal=how)
        if not holds_within(lambda: not self.runs(name), STOP_SECONDS):
            self._ask("signal", name, signal=signal.SIGKILL)
            holds_within(lambda: not self.runs(name), STOP_SECONDS)

    def start_again(self, name: str) -> None:
        """Start a server as it was started before."""
        self.start(name, *self._servers[name])

    def runs(self, name: str) -> bool:
        """Say whether a server runs."""
        return self._ask("look", name)["pid"] is not None

    def run(self, *command: str, check: bool = True) -> str:
        """Run a command inside and return what it says.

        Raises
        ------
        RuntimeError
            It failed, and ``check`` asks to know.
        """
        namespaces = ("--mount", "--net", "--ipc", "--uts", "--pid")
        done = subprocess.run(
            ["nsenter", "--target", str(self.pid), *namespaces, "--", *command],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        if check and done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} failed: {done.stderr or done.stdout}")
        return done.stdout

    def log(self, name: str) -> Path:
        """Return where a server's output is kept."""
        return self.slot.folder / f"{name}.log"

    def tail(self, name: str, lines: int = 15) -> str:
        """Return the last lines of a server's output, of which it has none before it starts."""
        log = self.log(name)
        if not log.exists():
            return ""
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])

    def _link(self) -> None:
        """Join machine and node by a pair of links; Pods are reached through the node."""
        slot = self.slot
        _ip(
            "link", "add", slot.link, "type", "veth", "peer", "name", "eth0", "netns", str(self.pid)
        )
        _ip("address", "add", f"{slot.machine}/30", "dev", slot.link)
        _ip("address", "add", f"{slot.api_server}/32", "dev", slot.link)
        _ip("link", "set", slot.link, "up")
        self.run("ip", "address", "add", f"{slot.node}/30", "dev", "eth0")
        self.run("ip", "link", "set", "eth0", "up")
        self.run("ip", "route", "add", "default", "via", slot.machine)
        _ip("route", "add", slot.pods, "via", slot.node)

    def _ask(self, what: str, name: str, **more: Any) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": what, "name": name, **more}) + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise NotReadyError(f"The node has ended. The end of its log:\n{self.tail('node')}")
        answer: dict[str, Any] = json.loads(line)
        return answer


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(arguments)} failed: {done.stderr.strip()}")
