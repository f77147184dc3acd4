"""The operator as a process of its own, to be killed; and started again in a moment.

Importing the operator takes longer than most of what is tested. So one process, the forge,
imports it and then forks operators: each is a whole process, which SIGKILL ends like any other.

    operator = await forge.start(kubeconfig, log, identity="first")
    os.kill(operator.pid, signal.SIGKILL)
    status = await operator.ended
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Self, TypeVar

from support.crds import SERVER_NAMESPACE
from support.polling import TIMEOUT

__all__ = ["Forge", "OperatorProcess"]

TESTS = Path(__file__).parents[1]

T = TypeVar("T")


@dataclass(eq=False)
class OperatorProcess:
    """One operator that was started.

    Attributes
    ----------
    ended
        Its wait status (`os.waitpid`), once it has ended.
    path
        The file that it logs to, perhaps after another.
    """

    pid: int
    ended: asyncio.Future[int]
    path: Path

    @property
    def log(self) -> str:
        """What was logged so far."""
        return self.path.read_text() if self.path.exists() else ""  # it has only just been forked

    async def stop(self) -> int:
        """End it as Kubernetes does, and return its wait status."""
        with contextlib.suppress(ProcessLookupError):  # it has just been killed
            os.kill(self.pid, signal.SIGTERM)
        return await self.ended


class Forge:
    """Starts operators; a context manager."""

    def __init__(self) -> None:
        found = [str(TESTS), *sys.path]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.operator_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # Each client would read the system's certificates, of which nobody here makes use.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(found), "SSL_CERT_FILE": os.devnull},
        )
        self._starting: deque[Future[tuple[int, Future[int]]]] = deque()
        self._ended: dict[int, Future[int]] = {}
        self._reader = threading.Thread(target=self._read, name="forge", daemon=True)

    def __enter__(self) -> Self:
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        for pid in list(self._ended):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=TIMEOUT)
        self._reader.join()
        self._process.stdout.close()

    async def start(
        self,
        kubeconfig: Path,
        log: Path,
        *,
        times: Mapping[str, float] | None = None,
        **settings: Any,
    ) -> OperatorProcess:
        """Start an operator; `settings` are those of `OperatorSettings`.

        Parameters
        ----------
        times
            What is to be otherwise in the operator's `Times`.
        """
        assert self._process.stdin is not None
        started: Future[tuple[int, Future[int]]] = Future()
        self._starting.append(started)
        order = {
            "kubeconfig": str(kubeconfig),
            "log": str(log),
            "times": times or {},
            "settings": {"server_namespace": SERVER_NAMESPACE, **settings},
        }
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        async with asyncio.timeout(TIMEOUT):
            pid, ended = await asyncio.wrap_future(started)
        return OperatorProcess(pid, asyncio.wrap_future(ended), log)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            what, pid, status = line.split()
            if what == "started":
                ended = self._ended[int(pid)] = Future()
                _resolve(self._starting.popleft(), (int(pid), ended))
            else:
                _resolve(self._ended.pop(int(pid)), int(status))


def _resolve(future: Future[T], result: T) -> None:
    """Set a result, unless the test that waited for it has given up."""
    if future.set_running_or_notify_cancel():
        future.set_result(result)


def _tell(what: str, pid: int, status: int = 0) -> None:
    # One write, past Python's buffers: a signal handler may do this at any time.
    os.write(1, f"{what} {pid} {status}\n".encode())


def _reap(*_: object) -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            _tell("ended", pid, status)


def _forge() -> None:
    """Fork an operator for each line of the input."""
    import_module("partita.process.main")  # what takes so long, once
    import_module("partita.process.crd_check")._wanted()
    import_module("partita_policies.registry").available()  # it reads what is installed, once
    models = [import_module("partita.models").Model]
    for model in models:  # a model is built when it is first used
        models += model.__subclasses__()
        model.model_rebuild()
    signal.signal(signal.SIGCHLD, _reap)
    for line in sys.stdin:
        # Not told of its end before it was told of its start. And a handler of coverage, which the
        # child inherits, loses a SIGTERM that comes at once: the child has none from the start.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGTERM})
        pid = os.fork()
        if not pid:
            _operate(json.loads(line))
        _tell("started", pid)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD, signal.SIGTERM})


def _operate(order: dict[str, Any]) -> None:
    from partita.process.logs import configure_logs
    from partita.process.main import run_operator
    from partita.process.settings import OperatorSettings
    from partita.process.task_shutdown import alone
    from partita.times import Times

    status = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD, signal.SIGTERM})
        log = os.open(order["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.dup2(log, 2)
        os.dup2(log, 1)
        configure_logs()
        times = Times(**{"first_back_off": 0.1, **order["times"]})
        settings = OperatorSettings(**{"lease_duration": TIMEOUT, **order["settings"]})
        asyncio.run(alone(run_operator(settings, order["kubeconfig"], times=times)))
        status = 0
    except Exception as error:  # noqa: BLE001 - the process ends with it
        sys.stderr.write(f"operator ended: {error!r}\n")
        sys.stderr.flush()
    finally:
        os._exit(status)


if __name__ == "__main__":
    _forge()
