"""Takes the GPU: finds it, makes sure that it is free and fit, claims it, hands it to MPS."""

import asyncio
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from partita.agent import compute_mode
from partita.agent.errors import MPSError, MPSGoneError, SetupError
from partita.agent.gpu_discovery import assigned, check, find_gpu
from partita.agent.mps_control import ControlDaemon
from partita.agent.nvml import GPUIdentity, NVMLDevice, cuda_version, driver_version
from partita.agent.nvml_threads import in_thread
from partita.agent.paths import Handover, Lock
from partita.agent.running_jobs import RunningJobs
from partita.agent.settings import AgentSettings
from partita.models import SharingMode
from partita.models.base import MEBI

__all__ = ["Claim", "Claimed"]

_LOCK_TRIES: Final = 10
_LOCK_PAUSE: Final = 0.1
"""The MPS wrapper looks at the lock, for an instant, several times a second."""

_MPS_ENDS_WITHIN: Final = 15.0
"""Seconds for MPS to end, within the 30 s that a Pod has."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """A GPU that is ours."""

    gpu: NVMLDevice
    identity: GPUIdentity
    driver: str
    cuda: int | None
    """The newest CUDA that the driver serves, such as 13010 for 13.1; None if unknown."""


class Claim:
    """Takes one GPU, and gives it back.

    Parameters
    ----------
    settings
        What the Pod was told.
    control_lock
        Held while a command of the MPS control daemon runs.
    """

    def __init__(self, settings: AgentSettings, control_lock: asyncio.Lock) -> None:
        self._settings = settings
        self._control_lock = control_lock
        self._server_lock = Lock(settings.paths.agent_lock)
        self._gpu_lock: Lock | None = None
        self._handover: Handover | None = None
        self._given_back = False

    async def identify(self) -> Claimed:
        """Find the GPU.

        Raises
        ------
        SetupError
            If it cannot be told which one it is, or another agent has it.
        NVMLError
            If the driver does not answer.
        """
        settings = self._settings
        await _take(self._server_lock, f"another agent serves {settings.server}")
        told = await assigned(settings.pod, settings.namespace, settings.pod_resources)
        gpu = await in_thread(find_gpu, told)
        identity = await in_thread(gpu.identity)
        if self._gpu_lock is None:
            self._gpu_lock = Lock(settings.paths.gpu_lock(identity.uuid))
        await _take(self._gpu_lock, f"another agent of this node serves {identity.uuid}")
        driver, cuda = await in_thread(driver_version), await in_thread(cuda_version)
        return Claimed(gpu, identity, driver, cuda)

    async def take(self, claimed: Claimed, jobs: RunningJobs) -> None:
        """Make sure that the GPU is fit and free, and claim it.

        Raises
        ------
        SetupError
            If it is not; says what to change.
        NVMLError
            If the driver does not answer.
        """
        mode = self._settings.mode
        check(claimed.identity, claimed.driver, mode)
        await self._make_sure_that_it_is_free(claimed, jobs)
        await self.set_mode(claimed.gpu)
        if mode is SharingMode.MPS:
            self._hand_over(claimed.identity)

    async def set_mode(self, gpu: NVMLDevice) -> None:
        """Set the compute mode that the way of sharing needs; a reset of the GPU undoes it."""
        keep = self._settings.keep_compute_mode
        await in_thread(compute_mode.claim, gpu, self._settings.mode, keep=keep)

    async def _make_sure_that_it_is_free(self, claimed: Claimed, jobs: RunningJobs) -> None:
        """Let nobody use it but our MPS and our jobs, which outlive an agent."""
        processes = await in_thread(claimed.gpu.processes)
        strangers = jobs.strangers({process.pid for process in processes})
        if strangers and self._settings.mode is SharingMode.MPS:
            pipes = str(self._settings.paths.pipes(claimed.identity.uuid))
            control = ControlDaemon(pipes, self._control_lock)
            try:
                for server in await control.servers():
                    strangers -= {server, *await control.clients(server)}
            except MPSGoneError:
                pass
            except MPSError:
                # Our daemon is there but cannot say who its clients are: it is to be mended.
                strangers.clear()
        if strangers:
            pids = ", ".join(map(str, sorted(strangers)[:5]))
            raise SetupError(
                "GPUInUse",
                f"processes that are none of Partita's use the GPU (PID {pids}): end them, or "
                "leave the GPU out of the partition",
            )

    def _hand_over(self, identity: GPUIdentity) -> None:
        path = self._settings.paths.handover
        old = Handover.read(path)
        restarts = old.restarts if old is not None and old.uuid == identity.uuid else 0
        self._handover = Handover(identity.uuid, identity.memory // MEBI, os.getpid(), restarts)
        self._handover.write(path)

    def restart_mps(self) -> None:
        """Ask the wrapper for another control daemon."""
        old = self._handover
        if old is not None:
            self._handover = Handover(old.uuid, old.memory, old.agent, old.restarts + 1)
            self._handover.write(self._settings.paths.handover)

    async def give_back(self, gpu: NVMLDevice) -> None:
        """Let MPS end, anybody use the GPU again, and nothing of us be left on the node.

        Raises
        ------
        AgentError
            If the compute mode cannot be restored.
        """
        paths, old = self._settings.paths, self._handover
        try:
            if old is not None:
                Handover("", 0, old.agent, old.restarts).write(paths.handover)
                await _gone(paths.pipes(old.uuid))
                shutil.rmtree(paths.gpu(old.uuid), ignore_errors=True)
            paths.handover.unlink(missing_ok=True)
        finally:
            await in_thread(compute_mode.restore, gpu, keep=self._settings.keep_compute_mode)
            self._given_back = True

    def release(self) -> None:
        """Give the locks back; their files, too, where nothing of ours goes on without us."""
        over = self._given_back or self._handover is None
        for lock in (self._gpu_lock, self._server_lock):
            if lock is not None:
                lock.release(remove=over)
        if over:
            _remove(self._settings.paths.handover.parent)


def _remove(directory: Path) -> None:
    """Remove a directory, where nothing of another agent's is in it."""
    with suppress(OSError):
        directory.rmdir()


async def _gone(directory: Path) -> None:
    """Wait until the MPS wrapper has ended its daemon; not for ever."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_MPS_ENDS_WITHIN):
            while directory.exists():  # noqa: ASYNC110, ASYNC240 - another process removes it
                await asyncio.sleep(_LOCK_PAUSE)


async def _take(lock: Lock, otherwise: str) -> None:
    for _ in range(_LOCK_TRIES):
        if lock.take():
            return
        await asyncio.sleep(_LOCK_PAUSE)
    raise SetupError(
        "AgentElsewhere",
        f"{otherwise}: two may not serve one GPU; end the other one, whose PID is {lock.holder()}",
    )
