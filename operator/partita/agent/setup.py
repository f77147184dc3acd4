"""Acquires the GPU: finds it, checks that it is free and can be shared, configures it and MPS."""

import asyncio
import os
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from partita.agent.attribution.allocated_processes import AllocatedProcesses
from partita.agent.errors import MPSError, MPSGoneError, SetupError
from partita.agent.file_lock import FileLock
from partita.agent.gpu.discovery import assigned, check, find_gpu
from partita.agent.gpu.nvml import GPUIdentity, NVMLDevice, close_library, open_library
from partita.agent.gpu.nvml_threads import in_thread
from partita.agent.limits.decision import LimitSupport
from partita.agent.limits.driver_limits import limit_support
from partita.agent.mps.control import MPSControl
from partita.agent.mps.exchange import MPSConfig, MPSReport
from partita.agent.mps.protocol import control_client
from partita.agent.mps.selection import MPSSelection, check_static_sm
from partita.agent.paths import remove_file
from partita.agent.settings import AgentSettings
from partita.agent.times import AgentTimes
from partita.models import SharingMode

__all__ = ["AcquiredGPU", "GPUSetup"]

_POLL: Final = 0.1
"""Seconds between two looks at a lock, and at the files of an MPS that exits."""
_MPS_EXITS_WITHIN: Final = 15.0
"""Seconds for MPS to exit, within the 30 s that a Pod has to terminate."""
_CDI_DEVICE: Final = "nvidia.com/gpu={}"
"""The default name of a GPU in `nvidia-ctk cdi generate`:
https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/cdi-support.html."""


@dataclass(frozen=True, slots=True)
class AcquiredGPU:
    """The GPU that this agent serves."""

    device: NVMLDevice
    identity: GPUIdentity
    selection: MPSSelection
    """What the partition asks of MPS."""
    cdi: tuple[str, ...]
    """The CDI devices with the device files of the GPU, for claims; empty if the container runtime
    adds these because of NVIDIA_VISIBLE_DEVICES."""
    limit_support: LimitSupport | None
    """What there is for the driver's limits, which only MPS uses; None in other modes."""


class GPUSetup:
    """Acquires one GPU and releases it.

    Parameters
    ----------
    settings
        The agent's settings.
    times
        How long it waits.
    """

    def __init__(self, settings: AgentSettings, times: AgentTimes) -> None:
        self._settings = settings
        self._times = times
        self._control_lock = asyncio.Lock()
        self._server_lock = FileLock(settings.paths.agent_lock)
        self._gpu_lock: FileLock | None = None
        self._uuid = ""

    def control(self, deadline: float | None = None) -> MPSControl:
        """Return a client of the GPU's control daemon; call `identify` first."""
        report = self.mps_report()
        protocol = report.protocol if report is not None else 2
        pipes = self._settings.paths.pipes(self._uuid)
        if report is None:
            pipes /= "none"  # until a daemon has started its protocol is not known
        deadline = deadline or self._times.mps_answers_within
        return control_client(protocol, pipes, self._control_lock, deadline)

    def mps_report(self) -> MPSReport | None:
        """Return what the MPS container has started; None until then."""
        return MPSReport.read(self._settings.paths.mps_report)

    async def identify(self, selection: MPSSelection) -> AcquiredGPU:
        """Find the GPU and lock it.

        Raises
        ------
        SetupError
            The GPU of the Pod is unknown, or another agent serves it.
        NVMLError
            The driver does not answer.
        """
        settings = self._settings
        await self._acquire(self._server_lock, f"another agent serves {settings.server}")
        uuids, cdi = await assigned(settings.server, settings.namespace, settings.pod_resources)
        device = await in_thread(find_gpu, uuids)
        identity = await in_thread(device.identity)
        self._uuid = identity.uuid
        if self._gpu_lock is None:
            self._gpu_lock = FileLock(settings.paths.gpu_lock(identity.uuid))
        await self._acquire(self._gpu_lock, f"another agent of this node serves {identity.uuid}")
        support = None
        if settings.mode is SharingMode.MPS:
            support = await in_thread(limit_support, device, identity.driver, settings.cgroups)
        if not cdi and settings.injection == "CDI":
            cdi = (_CDI_DEVICE.format(identity.uuid),)
        return AcquiredGPU(device, identity, selection, cdi, support)

    async def _acquire(self, lock: FileLock, otherwise: str) -> None:
        end = time.monotonic() + self._times.locked_within
        while not lock.acquire():
            if time.monotonic() >= end:
                raise SetupError(
                    "AgentElsewhere",
                    f"{otherwise}: two agents cannot serve one GPU; end the other one, with PID "
                    f"{lock.holder()}",
                )
            await asyncio.sleep(_POLL)

    async def configure(self, gpu: AcquiredGPU, processes: AllocatedProcesses) -> None:
        """Check that the GPU can be shared and is free, and configure it and MPS.

        Parameters
        ----------
        processes
            Whose the processes on the GPU are.

        Raises
        ------
        SetupError
            The check fails; the message contains what to change.
        NVMLError
            The driver does not answer.
        """
        check(gpu.identity, self._settings.mode)
        if gpu.selection.static_sm:
            check_static_sm(gpu.identity)
        await self._check_free(gpu, processes)
        is_mps = self._settings.mode is SharingMode.MPS
        await in_thread(partial(gpu.device.set_exclusive, exclusive=is_mps))
        if is_mps:
            path, identity = self._settings.paths.mps_config, gpu.identity
            old = MPSConfig.read(path)
            config = MPSConfig(
                uuid=identity.uuid,
                agent=os.getpid(),
                restarts=old.restarts if old is not None and old.uuid == identity.uuid else 0,
                slots=gpu.selection.spec.max_jobs,
                protocol=gpu.selection.newest_protocol,
                static_sm=gpu.selection.static_sm,
            )
            config.write(path)

    async def _check_free(self, gpu: AcquiredGPU, processes: AllocatedProcesses) -> None:
        """Check that only Partita's MPS and jobs use the GPU; both run on without an agent."""
        others = processes.without_allocation(await in_thread(gpu.device.processes))
        if others and self._settings.mode is SharingMode.MPS:
            control = self.control()
            try:
                for server in await control.servers():
                    others -= {server, *await control.clients(server)}
            except MPSGoneError:
                pass
            except MPSError:
                # Partita's daemon runs but cannot report its clients. It will be restarted.
                others.clear()
        if others:
            pids = ", ".join(map(str, sorted(others)[:5]))
            raise SetupError(
                "GPUInUse",
                f"processes that do not belong to Partita use the GPU (PID {pids}): end them, or "
                "exclude the GPU from the partition",
            )

    def restart_mps(self) -> None:
        """Request a restart of the MPS control daemon."""
        path = self._settings.paths.mps_config
        if (config := MPSConfig.read(path)) is not None:
            replace(config, restarts=config.restarts + 1).write(path)

    async def release_gpu(self, uuid: str) -> None:
        """Stop MPS, restore the compute mode and remove the agent's files from the node.

        Raises
        ------
        AgentError
            The compute mode cannot be restored, or a file cannot be removed.
        """
        paths = self._settings.paths
        try:
            config = MPSConfig.read(paths.mps_config)
            if config is not None and config.uuid:
                MPSConfig("", config.agent, config.restarts).write(paths.mps_config)
                await _removed(paths.pipes(config.uuid))
                shutil.rmtree(paths.gpu(config.uuid), ignore_errors=True)
            for path in (paths.mps_config, paths.mps_report, paths.mps_toml):
                remove_file(path)
        finally:
            await in_thread(_let_all_use, uuid)

    def close(self) -> None:
        """Release the locks; remove their files if no MPS daemon runs on without the agent."""
        remove = not self._settings.paths.mps_config.exists()
        for lock in (self._gpu_lock, self._server_lock):
            if lock is not None:
                lock.release(remove=remove)
        if remove:
            with suppress(OSError):  # the directory contains files of another agent
                self._settings.paths.mps_config.parent.rmdir()


def _let_all_use(uuid: str) -> None:
    """Set the default compute mode. NVML may have been closed since the GPU was found."""
    open_library()
    try:
        NVMLDevice.of(uuid).set_exclusive(exclusive=False)
    finally:
        close_library()


async def _removed(directory: Path) -> None:
    """Wait until the MPS container has removed a directory, for a limited time."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_MPS_EXITS_WITHIN):
            while directory.exists():  # noqa: ASYNC110, ASYNC240 - another process removes it
                await asyncio.sleep(_POLL)
