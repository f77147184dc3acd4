"""`partita agent`: everything at once, for one GPU, until it is stopped."""

import asyncio
import ctypes
import gc
import linecache
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, NoReturn

import structlog

from partita.agent.device_plugin import DevicePlugin, Slots
from partita.agent.errors import AgentError, GPULostError, NVMLError, SetupError
from partita.agent.gpu_health import SILENT_AFTER, GPUWatch, Vitals, probe
from partita.agent.gpu_setup import Claim, Claimed
from partita.agent.health import FATAL_TO_CLIENTS, Health, Source, Trouble
from partita.agent.mps_control import ControlDaemon, max_clients
from partita.agent.mps_health import MPSWatch
from partita.agent.mps_server_log import ServerLog
from partita.agent.nvml import GPUEvent, NVMLDevice, close_library, open_library
from partita.agent.nvml_threads import EventThread, Readings, SamplingThread, in_thread
from partita.agent.processes import PodsOfProcesses
from partita.agent.profile_store import ProfileStore
from partita.agent.reporter import GPUReport, Reporter
from partita.agent.running_jobs import RunningJobs
from partita.agent.settings import AgentSettings
from partita.agent.terminate import terminator
from partita.agent.unknown_processes import Unknown
from partita.agent.waits import woken
from partita.kube.client import PODS, SERVERS, Kube
from partita.kube.connect import connect
from partita.kube.errors import KubernetesError, NotFoundError
from partita.kube.events import Events
from partita.models import SharingMode
from partita.models.base import format_memory, mebibytes
from partita.models.profile import Environment

__all__ = ["Agent", "run_agent"]

POLL_EVERY: Final = 5.0
"""Seconds between two looks at the ledger, when nothing asks for one sooner."""
LOOK_EVERY: Final = 5.0
"""Seconds between two looks at the GPU's and MPS's health, when no event asks for one."""
REPORT_EVERY: Final = 1.0
"""Seconds between two looks at whether there is something to report."""
SET_UP_AGAIN: Final = 5.0
"""Seconds before a GPU that cannot be served is tried again: whatever was wrong may be mended."""


async def run_agent(
    settings: AgentSettings, stop: asyncio.Event, kubeconfig: str | None = None
) -> None:
    """Serve a GPU until stopped."""
    async with connect(kubeconfig) as api:
        await Agent(settings, Kube(api)).run(stop)


class Agent:
    """The agent of one GPU.

    Parameters
    ----------
    settings
        What the server Pod was told.
    kube
        The API server.
    """

    def __init__(self, settings: AgentSettings, kube: Kube) -> None:
        self._settings = settings
        self._kube = kube
        self._log = structlog.get_logger(__name__).bind(server=settings.server, node=settings.node)
        self._events = Events(kube)
        self._reporter = Reporter(kube, settings.server)
        self._control_lock = asyncio.Lock()
        self._claim = Claim(settings, self._control_lock)
        self._claimed: Claimed | None = None
        self._gpu_again = asyncio.Event()
        self._look_now = asyncio.Event()
        self._report_now = asyncio.Event()
        self._sampled_at = 0.0
        self._plugin: DevicePlugin | None = None
        self._mps: MPSWatch | None = None
        self.health = Health()
        self.jobs = RunningJobs(
            kube,
            settings.server,
            self._events,
            settings.mode,
            self._terminate,
            PodsOfProcesses(settings.proc),
            own=lambda: self._mps.servers if self._mps is not None else set(),
        )
        self._gpu_watch = GPUWatch(self.health, self.jobs.released)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until stopped, then give the GPU back if its Pod goes.

        Cancelled, or by an error of its own, it leaves all as it is: its jobs run on.
        """
        self.health.note(Source.SETUP, Trouble("AgentStarting", "the agent has just started"))
        work = asyncio.create_task(self._work())
        stopped = asyncio.create_task(stop.wait())
        try:
            try:
                await asyncio.wait({work, stopped}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                stopped.cancel()
                work.cancel()
                await asyncio.wait({work, stopped})
            if not work.cancelled():
                await work  # it never ends but by an error
            await self._farewell()
        finally:
            self._claim.release()

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._events.run())
            tasks.create_task(self._poll())
            tasks.create_task(self._report())
            tasks.create_task(self._serve())

    # Setting up

    async def _serve(self) -> None:
        """Take the GPU as soon as it can be had, and serve it."""
        # Whose processes are whose is in the ledger.
        await self.jobs.known.wait()
        while True:
            try:
                await in_thread(open_library)
                try:
                    await self._serve_gpu(await self._take())
                finally:
                    close_library()
            except (SetupError, NVMLError) as error:
                reason = error.reason if isinstance(error, SetupError) else type(error).__name__
                reason = reason.removesuffix("Error")
                if self.health.note(Source.SETUP, Trouble(reason, str(error))):
                    self._log.warning("the GPU cannot be served", reason=reason, why=str(error))
            await asyncio.sleep(SET_UP_AGAIN)

    async def _take(self) -> Claimed:
        claimed = await self._claim.identify()
        self._claimed = claimed
        self._log = self._log.bind(gpu=claimed.identity.uuid)
        await self._claim.take(claimed, self.jobs)
        self.health.clear(Source.SETUP)
        return claimed

    async def _serve_gpu(self, claimed: Claimed) -> NoReturn:
        settings, identity = self._settings, claimed.identity
        slots = Slots(
            settings.server, identity.uuid, settings.max_jobs, settings.mode, settings.injection
        )
        self._plugin = DevicePlugin(slots, settings.device_plugins)
        if settings.mode is SharingMode.MPS:
            self._mps = MPSWatch(
                ControlDaemon(self._pipes(), self._control_lock),
                self.health,
                self._claim.restart_mps,
                self.jobs.released,
                self.jobs.alone,
                ServerLog(self._settings.paths.logs(identity.uuid)).faults,
            )
            self.health.note(Source.MPS_STARTING, Trouble("MPSStarting", "MPS is being started"))
        where = Environment(
            node=settings.node,
            product=identity.product,
            architecture=identity.architecture,
            memory=identity.memory,
            sm_count=identity.sm_count,
            pcie_bandwidth=identity.pcie_bandwidth,
        )
        store = ProfileStore(self._kube, where, slots.resource, time.time())
        self._log.info("serving", mode=settings.mode, slots=settings.max_jobs)
        _give_back_memory()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._plugin.run())
            tasks.create_task(store.run(self.jobs.finished))
            tasks.create_task(self._look())
            tasks.create_task(self._sample(claimed.gpu))
        raise AssertionError  # the tasks never end

    def _pipes(self) -> str:
        assert self._claimed is not None  # noqa: S101 - for the type checker
        return str(self._settings.paths.pipes(self._claimed.identity.uuid))

    async def _terminate(self, pid: int, is_same: Callable[[], bool]) -> str:
        if self._claimed is None:
            return "the GPU is not ours yet"
        end = terminator(self._settings.mode, self._pipes(), self._control_lock)
        return await end(pid, is_same)

    # Looking

    async def _sample(self, gpu: NVMLDevice) -> NoReturn:
        """Watch the GPU by threads; when it was lost, by new ones once it is back."""
        while True:
            self._sampled_at = time.monotonic()
            threads = [SamplingThread(gpu, self._take_sample), EventThread(gpu, self._take_event)]
            for thread in threads:
                thread.start()
            try:
                self._gpu_again.clear()
                await self._gpu_again.wait()
            finally:
                for thread in threads:
                    thread.end()
                    # Where it does not come back it is left behind.
                    thread.join(1.0)
            assert self._claimed is not None  # noqa: S101 - for the type checker
            gpu = self._claimed.gpu

    def _take_sample(self, seen: Readings) -> None:
        if isinstance(seen, NVMLError):
            self._trouble(seen)
            return
        self._sampled_at = time.monotonic()
        self._gpu_watch.answers()
        self.jobs.take(seen)
        if self._mps is not None and self._mps.listen():
            self._alarm()

    def _take_event(self, seen: GPUEvent | NVMLError) -> None:
        if isinstance(seen, NVMLError):
            self._trouble(seen)
        else:
            self._gpu_watch.event(seen, time.monotonic())
            if self._mps is not None and seen.xid in FATAL_TO_CLIENTS:
                self._mps.hear(f"Xid {seen.xid}")
            self._alarm()

    def _trouble(self, error: NVMLError) -> None:
        if isinstance(error, GPULostError) and self._gpu_watch.lost(str(error), time.monotonic()):
            self._log.error("the GPU is lost", why=str(error))
            self._alarm()

    def _alarm(self) -> None:
        """Look at once how things are, and tell: the operator waits a moment only to hear of it."""
        self._look_now.set()
        self._report_now.set()

    async def _look(self) -> NoReturn:
        """Ask GPU, MPS and kubelet how they are."""
        while True:
            now = time.monotonic()
            await self._look_at_gpu(now)
            if self._mps is not None:
                await self._mps.look(now)
            if self._plugin is not None and self._plugin.registered.is_set():
                self.health.clear(Source.KUBELET)
            else:
                socket = self._settings.device_plugins / "kubelet.sock"
                message = f"kubelet has not registered the GPU's slots: is {socket} there?"
                self.health.note(Source.KUBELET, Trouble("NotRegistered", message))
            if self.health.faulted:
                self._report_now.set()
            # What is not well is looked at more often.
            pause = LOOK_EVERY if self.health.verdict().ready else LOOK_EVERY / 5
            await woken(self._look_now, pause)

    async def _look_at_gpu(self, now: float) -> None:
        claimed = self._claimed
        assert claimed is not None  # noqa: S101 - for the type checker
        try:
            if self._gpu_watch.is_lost:
                await self._find_again(claimed, now)
                return
            self._gpu_watch.look(await in_thread(Vitals.of, claimed.gpu), now)
        except NVMLError as error:
            self._trouble(error)
        if now - self._sampled_at > SILENT_AFTER:
            self._gpu_watch.silent()

    async def _find_again(self, claimed: Claimed, now: float) -> None:
        """Take a GPU that was lost once it is back: with its old handle nobody reaches it."""
        gpu = await in_thread(probe, claimed.identity.uuid)
        self._gpu_watch.found(now)
        if not self._gpu_watch.is_lost:
            with suppress(SetupError):
                await self._claim.set_mode(gpu)
            self._claimed = Claimed(gpu, claimed.identity, claimed.driver, claimed.cuda)
            self._gpu_again.set()

    # The API server

    async def _poll(self) -> NoReturn:
        while True:
            try:
                await self.jobs.poll()
                self._reporter.take(self.jobs.body.get("status") or {})
            except NotFoundError:
                self._log.warning("there is no such GPUServer: it has been deleted")
            except KubernetesError as error:
                self._log.warning("ledger not read", error=str(error))
            await woken(self.jobs.wake, POLL_EVERY)

    async def _report(self) -> NoReturn:
        while True:
            if self._plugin is not None:
                await self._plugin.tell(healthy=self.health.verdict().ready)
            if self.jobs.known.is_set():
                await self._reporter.report(self.picture(), time.monotonic())
            await woken(self._report_now, REPORT_EVERY)

    def picture(self) -> GPUReport:
        """All that there is to report now."""
        facts: dict[str, Any] = {"node": self._settings.node}
        total = 0
        if self._claimed is not None:
            identity = self._claimed.identity
            total = identity.memory
            facts |= {
                "uuid": identity.uuid,
                "product": identity.product,
                "memory": mebibytes(identity.memory),
                "driverVersion": self._claimed.driver,
            }
            if self._settings.mode is SharingMode.MPS:
                facts["maxClients"] = max_clients(self._claimed.cuda)
            # What the GPU does not tell is left out.
            if identity.sm_count:
                facts["smCount"] = identity.sm_count
            if identity.pcie_bandwidth:
                facts["pcieBandwidth"] = format_memory(identity.pcie_bandwidth)
        last = self.jobs.last
        return GPUReport(
            facts=facts,
            verdict=self.health.verdict(),
            total=total,
            memory=last.used if last else 0,
            utilization=round(last.utilization or 0) if last else 0,
            jobs=self.jobs.uses(),
            mps=self._mps.status() if self._mps is not None else None,
            unknown=_unknown(self.jobs.unknown.found),
        )

    # The end

    async def _farewell(self) -> None:
        """Give the GPU back if the Pod goes; an agent that only restarts leaves all as it is."""
        await self.jobs.close()
        if self._claimed is not None and await self._pod_goes() is not False:
            self.health.note(Source.SETUP, Trouble("AgentStopped", "the GPU is given back"))
            if self._mps is not None:
                self._mps.state, self._mps.clients = "Stopped", 0
            try:
                await in_thread(open_library)
                await self._claim.give_back(self._claimed.gpu)
                close_library()
            except AgentError as error:
                self._log.error("the GPU was not given back", why=str(error))
            await self._reporter.report(self.picture(), time.monotonic())
            self._log.info("the GPU is given back")

    async def _pod_goes(self) -> bool | None:
        """Tell whether the Pod is being deleted; None where it cannot be told.

        Then the GPU is given back, too: at worst the compute mode is that of others until the
        agent is back, and no GPU is left that only MPS can use.
        """
        settings = self._settings
        try:
            async with asyncio.timeout(5):
                pod = await self._kube.get(PODS, settings.pod, settings.namespace)
                server = await self._kube.get(SERVERS, settings.server)
        except NotFoundError:
            return True
        except (KubernetesError, TimeoutError):
            return None
        return any("deletionTimestamp" in body["metadata"] for body in (pod, server))


def _give_back_memory() -> None:
    """Return to the node what only the start needed: a tenth of what the agent has.

    What is there now stays until the end, so the collector need not look at it again. pydantic has
    read the models' sources for their docstrings, and left them in the cache.
    """
    linecache.clearcache()
    gc.collect()
    gc.freeze()
    with suppress(AttributeError):  # glibc's own (malloc_trim(3))
        ctypes.CDLL(None).malloc_trim(0)


def _unknown(found: Sequence[Unknown]) -> dict[str, Any]:
    """Sum up processes without an allocation, naming none: anybody may read a GPUServer."""
    if not found:
        return {}
    return {
        "count": len(found),
        "inPods": sum(unknown.pod is not None for unknown in found),
        "memory": mebibytes(sum(unknown.memory for unknown in found)),
    }
