"""What the checks work with: the GPU, a directory, programs, MPS or none."""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from acceptance.clients import Client
from acceptance.mps import Daemon, client_environment, plain_environment
from acceptance.results import CannotRunError

if TYPE_CHECKING:
    # pynvml may be what is missing.
    from partita.agent.nvml import GPUIdentity, NVMLDevice

__all__ = ["MIB", "WORKER", "Bench", "Sharing"]

MIB = 1 << 20
WORKER = (sys.executable, "-m", "acceptance.worker")


@dataclass(frozen=True, slots=True)
class Sharing:
    """A way in which programs share the GPU, and the means to start them so."""

    bench: Bench
    daemon: Daemon | None
    stack: contextlib.ExitStack

    def start(self, count: int, limit: int | None = None) -> list[Client]:
        """Start programs at once and wait until each has its context.

        Parameters
        ----------
        limit
            MiB that each may have, with MPS.
        """
        bench = self.bench
        if self.daemon is None:
            environment = plain_environment(bench.identity.uuid, bench.nowhere)
        else:
            environment = client_environment(bench.identity.uuid, self.daemon.pipes, limit)
        made = [
            self.stack.enter_context(Client(bench.worker, environment, bench.new_file()))
            for _ in range(count)
        ]
        return [client.ready() for client in made]


@dataclass(slots=True)
class Bench:
    """One GPU to try.

    Parameters
    ----------
    folder
        A directory for this run alone.
    no_mps
        Why there is no MPS; empty if there is.
    """

    gpu: NVMLDevice
    identity: GPUIdentity
    folder: Path
    no_mps: str = ""
    worker: Sequence[str] = WORKER
    seconds: float = 2.0
    """How long programs run to be measured."""
    deadline: float = field(default_factory=lambda: time.monotonic() + 3600)
    """When all is to be over, of `time.monotonic`."""
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

    @contextlib.contextmanager
    def daemon(self) -> Iterator[Daemon]:
        """Run an MPS daemon until the end of the block.

        Raises
        ------
        CannotRunError
            If it does not come up; then no other is tried either.
        """
        daemon = Daemon(self.new_folder(), self.identity.uuid)
        try:
            daemon.start()
        except CannotRunError as error:
            self.no_mps = f"MPS does not start here: {error}"
            raise CannotRunError(self.no_mps) from None
        try:
            yield daemon
        finally:
            daemon.stop()

    @contextlib.contextmanager
    def sharing(self, *, mps: bool) -> Iterator[Sharing]:
        """Share the GPU by MPS or by time slicing, until the end of the block.

        Raises
        ------
        CannotRunError
            If there is no MPS.
        """
        with contextlib.ExitStack() as stack:
            daemon = None
            if mps:
                if self.no_mps:
                    raise CannotRunError(self.no_mps)
                daemon = stack.enter_context(self.daemon())
            yield Sharing(self, daemon, stack.enter_context(contextlib.ExitStack()))
