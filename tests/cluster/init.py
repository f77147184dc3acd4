"""The first process of a test node: makes its mounts, starts its servers, reaps what they leave.

It runs as process 1 of namespaces of its own, so that all the node's processes, mounts and links
end with it, by the kernel's hand and whatever happened to the tests: the end of process 1 kills
every process of its PID namespace (``man 7 pid_namespaces``), and mounts and links go with their
namespaces' last process. It imports nothing but the standard library and takes one JSON object a
line on stdin, answering each with one on stdout.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["main"]

SYSCTLS = (
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)
"""Settings of the whole machine that a kubelet changes, `setupKernelTunables` in Kubernetes'
pkg/kubelet/cm/container_manager_linux.go: it gets files of its own to write them into."""


class Servers:
    """The servers that were asked for; each in a session of its own."""

    def __init__(self) -> None:
        self._running: dict[str, int] = {}
        self._codes: dict[str, int] = {}

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Do what one line asks for."""
        name = request["name"]
        match request["do"]:
            case "start":
                self._start(name, request["command"], Path(request["log"]))
            case "signal" if name in self._running:
                os.kill(self._running[name], request["signal"])
        return {"pid": self._running.get(name), "code": self._codes.get(name)}

    def _start(self, name: str, command: Sequence[str], log: Path) -> None:
        with log.open("ab") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._running[name] = process.pid
        self._codes.pop(name, None)
        process.returncode = 0  # reaped below, with all others: no one else need wait for it

    def reap(self) -> None:
        """Take note of every process that has ended, our own or adopted."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for name in [name for name, running in self._running.items() if running == pid]:
                del self._running[name]
                self._codes[name] = os.waitstatus_to_exitcode(status)


def prepare(folder: Path) -> None:
    """Mount what the node has to itself, all of it kept below ``folder``.

    Paths that have to be where they are on a true node (``/var/lib/kubelet``, ``/run/partita``)
    are so here; on the machine nothing is made or changed outside ``folder``.
    """
    for name in ("var", "var-work", "run", "kubelet", "sysctls"):
        (folder / name).mkdir(exist_ok=True)
    overlay = f"lowerdir=/var,upperdir={folder}/var,workdir={folder}/var-work"
    _mount("-t", "overlay", "-o", overlay, "overlay", "/var")
    _mount("--bind", f"{folder}/run", "/run")
    Path("/var/lib/kubelet").mkdir(exist_ok=True)
    _mount("--bind", f"{folder}/kubelet", "/var/lib/kubelet")
    for name in SYSCTLS:
        own = folder / "sysctls" / name.replace("/", "-")
        own.write_text((Path("/proc/sys") / name).read_text())
        _mount("--bind", str(own), f"/proc/sys/{name}")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")  # of this network namespace alone
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    socket.sethostname("partita-node")


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def main(folder: Path) -> None:
    """Serve until stdin ends; then all that runs here is killed."""
    prepare(folder)
    servers = Servers()
    wake, woken = socket.socketpair()
    for end in (wake, woken):
        end.setblocking(False)  # noqa: FBT003 - its only parameter
    signal.set_wakeup_fd(woken.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    with selectors.DefaultSelector() as selector:
        selector.register(wake, selectors.EVENT_READ)
        selector.register(sys.stdin, selectors.EVENT_READ)
        _say({"ready": True})
        while True:
            ready = {key.fileobj for key, _ in selector.select()}
            if wake in ready:
                wake.recv(4096)
            servers.reap()
            if sys.stdin in ready:
                line = sys.stdin.readline()  # one answer is awaited before the next line is sent
                if not line:
                    return
                _say(servers.answer(json.loads(line)))


def _say(answer: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
