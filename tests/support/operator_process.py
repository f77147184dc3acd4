"""The operator as a process of its own, to be killed; and started again in a moment.

Importing the operator takes longer than most of what is tested. So one process imports it and
then forks one operator after another: each is a whole process, which SIGKILL ends like any other.

    async with Forge(kubeconfig) as forge:
        operator = await forge.start()
        os.kill(operator.pid, signal.SIGKILL)
        status = await operator.ended
"""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Self

__all__ = ["Forge", "OperatorProcess"]

TESTS = Path(__file__).parents[1]
START_SECONDS = 60


@dataclass(eq=False)
class OperatorProcess:
    """One operator that was started.

    Attributes
    ----------
    ended
        Its wait status (`os.waitpid`), once it has ended.
    """

    pid: int
    ended: asyncio.Task[int]

    async def stop(self) -> int:
        """End it as Kubernetes does, and return its wait status."""
        import signal

        os.kill(self.pid, signal.SIGTERM)
        return await self.ended


class Forge:
    """Starts one operator at a time, against one API server.

    Parameters
    ----------
    log
        Takes what the operators log.
    settings
        Of `OperatorSettings`.
    """

    def __init__(self, kubeconfig: Path, log: Path, **settings: object) -> None:
        self._arguments = [str(kubeconfig), repr(settings)]
        self._path = log
        self._log: IO[bytes] | None = None
        self._process: asyncio.subprocess.Process | None = None

    @property
    def log(self) -> str:
        """What the operators have logged so far."""
        return self._path.read_text()

    async def __aenter__(self) -> Self:
        self._log = self._path.open("ab")
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "support.operator_process",
            *self._arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])},
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._log is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(10):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        self._log.close()

    async def start(self) -> OperatorProcess:
        """Start an operator; the one before must have ended."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(b"start\n")
        async with asyncio.timeout(START_SECONDS):
            pid = await self._number()
        return OperatorProcess(pid, asyncio.create_task(self._number()))

    async def _number(self) -> int:
        assert self._process is not None
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        assert line, "the forge has ended"
        return int(line)


def _serve(kubeconfig: str, settings: str) -> None:
    """Fork an operator for each line of the input; tell its PID, and its status at its end."""
    import ast

    from partita.controller.logs import configure_logs
    from partita.controller.operator import run_operator
    from partita.controller.settings import OperatorSettings
    from partita.scheduling import lifecycle

    lifecycle.FIRST_BACK_OFF = 0.1
    options = OperatorSettings(**{**asdict(OperatorSettings()), **ast.literal_eval(settings)})
    configure_logs()
    for _ in sys.stdin:
        pid = os.fork()
        if not pid:
            status = 1
            try:
                asyncio.run(run_operator(options, kubeconfig))
                status = 0
            except Exception as error:
                print(f"operator ended: {error!r}", file=sys.stderr, flush=True)
            finally:
                os._exit(status)
        print(pid, flush=True)
        print(os.waitpid(pid, 0)[1], flush=True)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
