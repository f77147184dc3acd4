"""An MPS control daemon of protocol 3, with one server and one namespace for the clients.

Commands: https://docs.nvidia.com/deploy/mps/mpsv3-interface.html, "CLI Command Structure".
"""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path

from acceptance.mps import ROOT, Daemon
from partita.agent.errors import MPSError, MPSGarbledError, MPSGoneError, MPSUnansweredError
from partita.agent.mps.control import COMMAND_DEADLINE, CONTROL
from partita.agent.mps.namespaces import SERVER

__all__ = ["DaemonV3"]

_CSV = "--format=csv,noheader"
_NAMESPACE = "clients"
_START_DEADLINE = 30.0
"""Seconds for a command that may start a server. An assumption."""


class DaemonV3(Daemon):
    """One control daemon of protocol 3, from its start to its end."""

    protocol = 3
    _client_pipes = Path()

    @property
    def client_pipes(self) -> Path:
        """The directory of the clients' namespace."""
        return self._client_pipes

    def terminate(self, pid: int, deadline: float) -> str:
        """Terminate a client; return the error, empty on success."""
        try:
            self.run("client", "terminate", str(pid), deadline=deadline)
        except MPSGarbledError as error:
            return str(error)
        return ""

    def state(self) -> str:
        """Return the status of its server."""
        rows = (row.split(",") for row in self.run("server", "list", _CSV).splitlines())
        return next((row[3] for row in rows if row[0] == SERVER), "")

    def partition(self, name: str) -> str:
        """Make a static SM partition of one chunk; return its CUDA_MPS_SM_PARTITION."""
        where = (f"--server={SERVER}", f"--device={self._uuid}", "--chunks=1")
        return self.run("sm-partition", "create", name, *where).strip().rpartition("=")[2]

    def run(self, *words: str, deadline: float = COMMAND_DEADLINE) -> str:
        """Run a command and return its output.

        Parameters
        ----------
        deadline
            Seconds.

        Raises
        ------
        MPSError
            No daemon runs, it refuses, or it does not answer in time.
        """
        environment = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(self.pipes)}
        command = [CONTROL, *words]
        try:
            ran = subprocess.run(
                command,
                env=environment,
                capture_output=True,
                text=True,
                timeout=deadline,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise MPSUnansweredError(f"no answer to {words} in {deadline:g} s") from None
        said = f"{ran.stderr}{ran.stdout}".strip()
        if ran.returncode != 0:
            missing = "Cannot find MPS control daemon" in said
            raise (MPSGoneError if missing else MPSGarbledError)(f"{' '.join(words)}: {said[:200]}")
        return ran.stdout

    def _commands(self) -> list[list[str]]:
        several = ["-m"] if os.getuid() == ROOT else []
        return [[CONTROL, "-f", "-p", "3", *several, *self._options]]

    def _active(self) -> bool:
        """Create server and namespace once the daemon answers."""
        with suppress(MPSError):
            self.run("server", "create", SERVER, f"--allowed-devices={self._uuid}")
        where = f"--server={SERVER}"
        with suppress(MPSError):
            self.run("namespace", "create", _NAMESPACE, where, deadline=_START_DEADLINE)
            # Without limits of its own a namespace gives the whole GPU, which these checks need.
            text = self.run("namespace", "get", _NAMESPACE, SERVER, "pipe-directory").strip()
            self._client_pipes = Path(text)
            return bool(text)
        return False

    def _quit(self) -> None:
        self.run("-q", deadline=self._ends_within)
