"""What the checks work with: the GPU, a directory, programs, MPS or none."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from acceptance.clients import Client
from acceptance.mps import Daemon, plain_environment
from acceptance.mps_v3 import DaemonV3
from acceptance.place import placed
from acceptance.requirements import CGROUP_ROOT
from acceptance.results import CannotRunError

if TYPE_CHECKING:
    # pynvml may be what is missing.
    from partita.agent.gpu.nvml import GPUIdentity, NVMLDevice

__all__ = ["CANARY_WITHIN", "MIB", "PROGRAM", "TERMINATED_WITHIN", "WORKER", "Bench"]

CANARY_WITHIN = 30.0
"""Seconds after which a new client that has no context counts as hung: the limit within which
Partita has to detect a wedge."""
TERMINATED_WITHIN = 30.0
"""Seconds that kai-scheduler/gpu-fractioning gives a terminate command
(fractioning-manager/mpsd/internal/drain/drain.go of its pull request 147)."""
MIB = 1 << 20
WORKER = (sys.executable, "-m", "acceptance.worker")
PROGRAM = (sys.executable, "-m", "acceptance.program")


@dataclass(slots=True)
class Bench:
    """One GPU to try.

    Parameters
    ----------
    folder
        A directory for this run alone.
    no_mps
        Why there is no MPS; empty if there is.
    worker, program
        Commands of the programs that use the GPU, with torch and without it.
    """

    gpu: NVMLDevice
    identity: GPUIdentity
    folder: Path
    no_mps: str = ""
    worker: Sequence[str] = WORKER
    seconds: float = 2.0
    """How long programs run to be measured."""
    neighbour_seconds: float = 6.0
    """How long a program computes beside one that is refused, killed or faulty, from before on."""
    longest_gap: float = 1.0
    """Seconds for which a refused client may hold up its neighbour. An assumption."""
    mps_starts_within: float = 60.0
    canary_within: float = CANARY_WITHIN
    terminated_within: float = TERMINATED_WITHIN
    """Seconds that MPS has to start, a new client to answer, and a client to be terminated."""
    ends_within: float = 10.0
    """Seconds that MPS and each program have to end, before they are killed."""
    cgroups: Path = CGROUP_ROOT
    """Where cgroups are mounted."""
    driver: str = ""
    """Version of the driver, such as `615.71.09`."""
    cuda: int | None = None
    """The newest CUDA that it supports, such as 13040."""
    no_torch: str = ""
    """Why torch cannot be used; empty if it can."""
    program: Sequence[str] = PROGRAM
    _files: int = 0

    @property
    def nowhere(self) -> Path:
        """A directory without a daemon."""
        path = self.folder / "nowhere"
        path.mkdir(exist_ok=True)
        return path

    def new_file(self) -> Path:
        """Return a file name for what a program says."""
        self._files += 1
        return self.folder / f"said-{self._files}"

    def new_folder(self) -> Path:
        """Make a directory."""
        return Path(tempfile.mkdtemp(dir=self.folder))

    def start(
        self,
        pipes: Path | None = None,
        *,
        command: Sequence[str] = (),
        cgroup: Path | None = None,
        without_shm: bool = False,
        variables: Mapping[str, str] | None = None,
    ) -> Client:
        """Start a program that uses the GPU; `ready` waits until it has its context.

        Parameters
        ----------
        pipes
            CUDA_MPS_PIPE_DIRECTORY; None for no MPS.
        command
            The program; by default the one that needs only the driver.
        cgroup
            Where it runs; None where we do.
        without_shm
            Whether /dev/shm is empty and read-only for it.
        variables
            More of its variables.
        """
        command = command or self.program
        if cgroup is not None or without_shm:
            command = placed(command, cgroup=cgroup, without_shm=without_shm)
        environment = plain_environment(self.identity.uuid, pipes or self.nowhere)
        return Client(
            command, {**environment, **(variables or {})}, self.new_file(), self.ends_within
        )

    @contextlib.contextmanager
    def daemon(self, protocol: int = 2, *options: str) -> Iterator[Daemon]:
        """Run an MPS daemon until the end of the block.

        Raises
        ------
        CannotRunError
            If it does not come up; then no other is tried either.
        """
        kind = DaemonV3 if protocol == DaemonV3.protocol else Daemon
        daemon = kind(
            self.new_folder(), self.identity.uuid, options, self.mps_starts_within, self.ends_within
        )
        try:
            daemon.start()
        except CannotRunError as error:
            if kind is not Daemon or options:
                raise
            self.no_mps = f"MPS does not start here: {error}"
            raise CannotRunError(self.no_mps) from None
        try:
            yield daemon
        finally:
            daemon.stop()

    @contextlib.contextmanager
    def workers(self, count: int, *, mps: bool) -> Iterator[list[Client]]:
        """Run programs with torch that share the GPU by MPS or by time slicing.

        Raises
        ------
        CannotRunError
            If there is no MPS.
        """
        with contextlib.ExitStack() as stack:
            pipes = self.nowhere
            if mps:
                if self.no_mps:
                    raise CannotRunError(self.no_mps)
                pipes = stack.enter_context(self.daemon()).pipes
            made = [
                stack.enter_context(self.start(pipes, command=self.worker)) for _ in range(count)
            ]
            yield [client.ready() for client in made]
