"""`partita agent`: acquires one GPU, serves it and reports its status until it is stopped."""

import asyncio
import time
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn

import structlog

from partita.agent.attribution.allocated_processes import summary
from partita.agent.dra.plugin import DRAPlugin
from partita.agent.dra.prepare import PreparedClaims
from partita.agent.errors import (
    AgentError,
    DeviceAccessLostError,
    NVMLError,
    NVMLHangsError,
    SetupError,
)
from partita.agent.event_wait import ends_within, event_or_timeout
from partita.agent.gpu.gpu_health import GPUHealth
from partita.agent.gpu.nvml import close_library, open_library
from partita.agent.gpu.nvml_threads import in_thread
from partita.agent.gpu_report import GPUReport
from partita.agent.health import RELEASED_WITHIN, Health, HealthProblem, Source
from partita.agent.metrics import AgentMetrics, serve_metrics
from partita.agent.mps.control import max_clients
from partita.agent.mps.selection import MPSSelection
from partita.agent.mps.terminate import terminate
from partita.agent.reporter import Reporter
from partita.agent.running_jobs import RunningJobs
from partita.agent.served_gpu import ServedGPU
from partita.agent.settings import AgentSettings
from partita.agent.setup import AcquiredGPU, GPUSetup
from partita.agent.start_memory import free_start_memory
from partita.agent.times import AgentTimes
from partita.kube.client import NODES, PODS, SERVERS, Kube
from partita.kube.connect import connect
from partita.kube.errors import KubernetesError, NotFoundError
from partita.kube.events import Events
from partita.models import Condition, SharingMode
from partita.models.quantities import format_memory, mebibytes
from partita.pods.user_namespaces import has_user_namespaces

__all__ = ["Agent", "run_agent"]


async def run_agent(
    settings: AgentSettings, stop: asyncio.Event, kubeconfig: str | None = None
) -> None:
    """Serve a GPU until stopped."""
    async with connect(kubeconfig) as api:
        await Agent(settings, Kube(api, manager="partita-agent"), AgentTimes()).run(stop)


class Agent:
    """The agent of one GPU.

    Parameters
    ----------
    settings
        The agent's settings.
    kube
        The API server.
    times
        How long it waits.
    """

    def __init__(self, settings: AgentSettings, kube: Kube, times: AgentTimes) -> None:
        self._settings = settings
        self._kube = kube
        self._times = times
        self._log = structlog.get_logger(__name__).bind(server=settings.server, node=settings.node)
        self._events = Events(kube)
        self._reporter = Reporter(kube, settings.server, times)
        self._report_now = asyncio.Event()
        self._setup = GPUSetup(settings, times)
        self._gpu: AcquiredGPU | None = None
        self._served: ServedGPU | None = None
        self.health = Health()
        self.jobs = RunningJobs(kube, settings, self._events, self._terminate, times)
        self._gpu_health = GPUHealth(self.health, self.jobs.ledger.released, times)
        self._claims = PreparedClaims(
            kube=kube,
            settings=settings,
            jobs=self.jobs,
            health=self.health,
            times=times,
        )
        self._dra = DRAPlugin(claims=self._claims, before_end=self._report_last)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until stopped, then release the GPU if the Pod is deleted.

        If this is cancelled or fails, the GPU is not released and its jobs continue to run.
        """
        self.health.set(Source.GPU, HealthProblem("AgentStarting", "the agent has just started"))
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
                await self._report_last()  # why
                await work  # ends only with an error
            await self._shut_down()
        finally:
            self._setup.close()

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._events.run())
            tasks.create_task(self._watch_server())
            tasks.create_task(self._read_ledger())
            tasks.create_task(self._report())
            if self._settings.metrics_port:
                metrics = AgentMetrics(self._settings.server, self.jobs)
                tasks.create_task(serve_metrics(self._settings.metrics_port, metrics))
            tasks.create_task(self._serve())
            # These also run without the GPU: kubelet must be able to unprepare claims.
            tasks.create_task(self._claims.run())
            tasks.create_task(self._dra.run())

    async def _serve(self) -> None:
        """Acquire the GPU and serve it; retry after errors."""
        # The ledger shows which processes on the GPU belong to jobs.
        loaded = self.jobs.ledger.loaded
        while not await ends_within(self._times.server_missed_every, loaded.wait()):
            self._log.warning(
                "waiting for the GPUServer: it does not exist, or this Pod may not read it; the "
                "operator creates both, so delete a server Pod that it did not create"
            )
        while True:
            try:
                await in_thread(open_library)
                try:
                    await self._serve_gpu()
                finally:
                    with suppress(NVMLHangsError):
                        await in_thread(close_library)
            except (SetupError, NVMLError) as error:
                if self.health.set(Source.GPU, HealthProblem.of(error)):
                    self._log.warning("GPU not acquired", reason=error.reason, error=str(error))
                elif isinstance(error, DeviceAccessLostError):
                    raise  # kubelet makes the container anew
            await asyncio.sleep(self._times.setup_retry)
            await ends_within(RELEASED_WITHIN, self._lost_jobs_released())

    async def _lost_jobs_released(self) -> None:
        """Wait until the jobs of a lost GPU are released: later ones would count as lost, too."""
        while self.health.faulted and not self.jobs.ledger.released():  # noqa: ASYNC110 - by others
            await asyncio.sleep(self._times.report_every)

    async def _serve_gpu(self) -> NoReturn:
        self._gpu = await self._setup.identify(await self._select())
        await self._setup.configure(self._gpu, self.jobs.processes)
        self.health.set(Source.GPU, None)
        self._served = ServedGPU(
            settings=self._settings,
            kube=self._kube,
            gpu=self._gpu,
            setup=self._setup,
            jobs=self.jobs,
            dra=self._dra,
            health=self.health,
            gpu_health=self._gpu_health,
            report_now=self._report_now,
            times=self._times,
        )
        self._claims.served = self._served
        self._log.info("serving", gpu=self._gpu.identity.uuid, mode=self._settings.mode)
        free_start_memory()
        await self._served.run()

    async def _select(self) -> MPSSelection:
        """Return what the partition asks of MPS.

        Raises
        ------
        SetupError
            The node cannot be read.
        """
        try:
            node = await self._kube.get(NODES, self._settings.node)
        except NotFoundError:
            node = {}
        except KubernetesError as error:
            raise SetupError("NodeNotRead", f"the Node cannot be read: {error}") from error
        return MPSSelection(self.jobs.ledger.server.spec, has_user_namespaces(node))

    async def _terminate(self, pid: int) -> str:
        mps = None
        if self._settings.mode is SharingMode.MPS:
            mps = self._setup.control(deadline=self._times.terminate_answers_within)
        error = await terminate(pid, partial(self.jobs.processes.pods.is_same, pid), mps)
        if not error:
            self.jobs.exits.terminated(pid)
        return error

    # The API server

    async def _watch_server(self) -> None:
        async for body in self.jobs.ledger.versions():
            self._reporter.set_known(body)
            await self.jobs.apply(body)
            self._claims.changed.set()

    async def _read_ledger(self) -> NoReturn:
        """Read the ledger when something on the GPU is not explained by what the watch sent."""
        while True:
            await self.jobs.processes.read_now.wait()
            self.jobs.processes.read_now.clear()
            try:
                await self.jobs.read_ledger()
            except KubernetesError as error:
                self._log.warning("ledger not read", error=str(error))

    async def _report(self) -> NoReturn:
        while True:
            if self._served is not None:
                self._dra.health.set(self.health.conditions())
            if self.jobs.ledger.loaded.is_set():
                await self._reporter.report(self.report(), time.monotonic())
            await event_or_timeout(self._report_now, self._times.report_every)

    async def _report_last(self) -> None:
        """Write what is not written yet, before this agent ends or kubelet reports a Pod's end.

        The operator reads the peaks then.
        """
        if self.jobs.ledger.loaded.is_set():
            write = self._reporter.report(self.report(), time.monotonic(), ending=True)
            await ends_within(self._times.peaks_within, write)

    def report(self) -> GPUReport:
        """Return the current content of the GPUServer's status."""
        facts: dict[str, Any] = {"node": self._settings.node}
        support: tuple[Condition, ...] = ()
        gpu, limits = self._gpu, self._served.limits if self._served is not None else None
        if gpu is not None:
            identity, mps_report = gpu.identity, self._setup.mps_report()
            is_mps, bandwidth = self._settings.mode is SharingMode.MPS, identity.pcie_bandwidth
            facts |= {
                "uuid": identity.uuid,
                "product": identity.product,
                "memory": mebibytes(identity.memory),
                "driverVersion": identity.driver,
                "maxClients": max_clients(identity.cuda) if is_mps else None,
                "smCount": identity.sm_count or None,
                "pcieBandwidth": format_memory(bandwidth) if bandwidth else None,
                **gpu.selection.status(mps_report),
            }
            support = gpu.selection.conditions(mps_report, identity)
            if limits is not None:
                facts["capabilities"] = limits.capabilities()
                facts["enforcement"] = limits.decision.enforcement
                support = (*support, limits.decision.condition)
        sample = self.jobs.sample
        mps = self._served.mps if self._served is not None else None
        return GPUReport(
            facts=facts,
            conditions=self.health.conditions(),
            support=support,
            total=gpu.identity.memory if gpu is not None else 0,
            memory=sample.used if sample else 0,
            utilization=round(self.jobs.utilization.value or 0),
            jobs=self.jobs.usage(),
            mps=mps.status() if mps is not None else None,
            unknown=summary(self.jobs.processes.unknown),
        )

    # Shutdown

    async def _shut_down(self) -> None:
        """Release the GPU if the Pod is deleted; do not release it if the agent only restarts."""
        await self.jobs.enforcer.close()
        if self._gpu is None or not await self._is_pod_deleted():
            return
        self.health.set(Source.GPU, HealthProblem("AgentStopped", "the GPU is released"))
        if self._served is not None and self._served.mps is not None:
            self._served.mps.state, self._served.mps.clients = "Stopped", frozenset()
        try:
            await self._setup.release_gpu(self._gpu.identity.uuid)
        except AgentError as error:
            self._log.error("the GPU was not released", error=str(error))
        await self._reporter.report(self.report(), time.monotonic())
        self._log.info("the GPU is released")

    async def _is_pod_deleted(self) -> bool:
        """Return whether the Pod is being deleted, or is gone and another one has its name.

        True if the API server does not answer.

        A wrong True stops MPS and sets the default compute mode until the agent is back. A wrong
        False could leave the GPU in a mode in which only MPS can use it.
        """
        settings = self._settings
        try:
            async with asyncio.timeout(5):
                pod = await self._kube.get(PODS, settings.server, settings.namespace)
                server = await self._kube.get(SERVERS, settings.server)
        except (KubernetesError, TimeoutError):
            return True
        is_gone = pod["metadata"]["uid"] != settings.pod_uid
        return is_gone or any("deletionTimestamp" in body["metadata"] for body in (pod, server))
