"""Run the real kubectl on a test's API server."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

from support.polling import TIMEOUT, until
from support.programs import program

__all__ = ["Kubectl", "Result"]


@dataclass(frozen=True)
class Result:
    """What one run printed, and its exit code."""

    code: int
    out: str
    err: str

    def ok(self) -> str:
        """Return what it printed; fail the test when it failed."""
        assert self.code == 0, f"exit code {self.code}\n{self.out}\n{self.err}"
        return self.out


class Kubectl:
    """A kubectl bound to a kubeconfig, with a home folder (and discovery cache) of its own."""

    def __init__(self, binary: Path, kubeconfig: Path, *, home: Path) -> None:
        self._command = [str(binary), f"--kubeconfig={kubeconfig}", f"--cache-dir={home}/cache"]
        self._environment = {"PATH": os.environ.get("PATH", ""), "HOME": str(home)}

    async def __call__(self, *arguments: str, stdin: str = "") -> Result:
        """Run it to its end."""
        options = {"stdin": asyncio.subprocess.PIPE, "env": self._environment}
        command = (*self._command, *arguments)
        async with program(*command, **options) as process, asyncio.timeout(TIMEOUT):
            out, err = await process.communicate(stdin.encode())
            return Result(process.returncode or 0, out.decode(), err.decode())

    async def established(self, *definitions: str) -> None:
        """Wait until kinds are served."""

        async def served() -> bool:  # kubectl fails if a definition has no conditions yet
            return (await self("wait", "--for=condition=Established", *definitions)).code == 0

        await until(served)
