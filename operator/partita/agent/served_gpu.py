"""Serves one configured GPU: samples it, checks its health, stores profiles."""

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import NoReturn

import structlog

from partita.agent.allocations import read_pod
from partita.agent.dra.device import ClaimGPU
from partita.agent.dra.plugin import DRAPlugin
from partita.agent.errors import GPULostError, MPSError, NVMLError
from partita.agent.event_wait import event_or_timeout
from partita.agent.gpu.gpu_health import GPUHealth
from partita.agent.gpu.nvml_threads import EventThread, in_thread
from partita.agent.gpu.xid import FATAL_TO_CLIENTS
from partita.agent.health import Health, HealthProblem, Source
from partita.agent.kubelet.client import accepts_connections
from partita.agent.limits.driver_limits import DriverLimits
from partita.agent.limits.probe import LimitProbe
from partita.agent.mps.canary_check import CanaryCheck, CanaryRunner
from partita.agent.mps.client_termination import ClientTermination
from partita.agent.mps.logs import mps_logs
from partita.agent.mps.mps_health import MPSHealth
from partita.agent.mps.slot_limits import SlotLimits
from partita.agent.mps.unlisted_clients import UnlistedClients
from partita.agent.running_jobs import RunningJobs
from partita.agent.settings import AgentSettings
from partita.agent.setup import AcquiredGPU, GPUSetup
from partita.agent.times import AgentTimes
from partita.agent.usage.job_usage import GPUSample
from partita.agent.usage.profile_store import ProfileStore
from partita.agent.usage.sampling import SamplingThread
from partita.constants import DRIVER
from partita.kube.client import Kube
from partita.models import SharingMode
from partita.models.profile import Environment

__all__ = ["ServedGPU"]


@dataclass
class ServedGPU:
    """Samples one GPU, checks its health and stores profiles.

    Parameters
    ----------
    gpu
        The GPU.
    setup
        The setup that configured the GPU.
    dra
        The DRA driver of the GPU, with its claims.
    gpu_health
        The health of the GPU, except for MPS.
    report_now
        Is set when the status should be written at once.
    times
        How long it waits.
    """

    settings: AgentSettings
    kube: Kube
    gpu: AcquiredGPU
    setup: GPUSetup
    jobs: RunningJobs
    dra: DRAPlugin
    health: Health
    gpu_health: GPUHealth
    report_now: asyncio.Event
    times: AgentTimes
    mps: MPSHealth | None = None
    limits: DriverLimits | None = None
    _termination: ClientTermination | None = None
    _check_now: asyncio.Event = field(default_factory=asyncio.Event)
    _read_anew: asyncio.Event = field(default_factory=asyncio.Event)
    _lost: asyncio.Future[GPULostError] = field(default_factory=asyncio.Future)

    def __post_init__(self) -> None:
        kube, settings, setup, jobs = self.kube, self.settings, self.setup, self.jobs
        gpu, health, times, identity = self.gpu, self.health, self.times, self.gpu.identity
        self._log = structlog.get_logger(__name__).bind(gpu=identity.uuid)
        where = Environment(
            node=settings.node,
            product=identity.product,
            architecture=identity.architecture,
            memory=identity.memory,
            sm_count=identity.sm_count,
            pcie_bandwidth=identity.pcie_bandwidth,
        )
        self.slot_limits = SlotLimits(
            ledger=jobs.ledger,
            control=setup.control,
            count=gpu.selection.spec.max_jobs,
            owners=self.dra.claims.slot_owners,
        )
        self._profiles = ProfileStore(kube, where, time.time(), times)
        unread = HealthProblem("GPUChecking", "the GPU's health has not been read yet")
        health.set(Source.RECOVERY, unread)
        self._unlisted = UnlistedClients(health, times)
        if settings.mode is SharingMode.MPS:
            logs = mps_logs(settings.paths.logs(identity.uuid))
            pipes = settings.paths.pipes(identity.uuid)
            runner = CanaryRunner(identity.uuid, pipes, setup.mps_report, times.canary_within)
            self.mps = MPSHealth(
                control=setup.control,
                health=health,
                canary=CanaryCheck(runner, setup.control().lock.locked),
                exits=jobs.exits,
                restart=setup.restart_mps,
                released=jobs.ledger.released,
                has_single_job=jobs.has_single_job,
                new_faults=lambda: [fault for log in logs for fault in log.faults()],
                times=times,
            )
            health.set(Source.MPS_STARTING, HealthProblem("MPSStarting", "MPS is starting"))
            self._termination = ClientTermination(
                control=setup.control,
                ledger=jobs.ledger,
                processes=jobs.processes.pods,
                terminated=jobs.exits.terminated,
                wedged=self.report_wedge,
                times=times,
            )
        if gpu.limit_support is not None:
            self.limits = DriverLimits(
                device=gpu.device,
                support=gpu.limit_support,
                probe=LimitProbe(kube, identity, settings.namespace, jobs.limits.tree),
                jobs=jobs.limits,
                variables=self.dra.claims.variables,
                health=health,
                times=times,
            )

    def claim_gpu(self, *, probe: bool = False) -> ClaimGPU | None:
        """Return the GPU as the devices of claims need it; see `ServesClaims`."""
        enforcement = self.limits.decision.enforcement if self.limits is not None else "Client"
        report = self.setup.mps_report() if self.mps is not None else None
        # Without a report MPS has exited, and its slots are not known.
        has_exited = self.mps is not None and report is None
        if has_exited or not self.health.serves_containers or (enforcement is None and not probe):
            return None
        return ClaimGPU(
            server=self.settings.server,
            uuid=self.gpu.identity.uuid,
            memory=self.gpu.identity.memory,
            mode=self.settings.mode,
            slots=self.gpu.selection.spec.max_jobs,
            cdi=self.gpu.cdi,
            driver_limits=enforcement == "Driver",
            mps=report,
        )

    async def run(self) -> NoReturn:
        """Serve until cancelled.

        Raises
        ------
        NVMLError
            The GPU is lost, or this container may not open it any more.
        SetupError
            A directory cannot be written.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._profiles.run(self.jobs.run_usage.measured))
                tasks.create_task(self._check())
                tasks.create_task(self._sample())
                if self.limits is not None:
                    tasks.create_task(self.limits.run())
                if self._termination is not None:
                    tasks.create_task(self._termination.run())
                raise await self._lost
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from failed
        finally:
            if self.mps is not None:
                await self.mps.canary.close()

    # Sampling

    async def _sample(self) -> NoReturn:
        """Run the threads that read the GPU; start new ones when it is to be read anew."""
        while True:
            self.gpu_health.reading(time.monotonic())
            device = self.gpu.device
            threads = [
                SamplingThread(device, self._on_samples, self._samples_often, self.times),
                EventThread(device, self._on_event, self.times),
            ]
            for thread in threads:
                thread.start()
            try:
                self._read_anew.clear()
                await self._read_anew.wait()
            finally:
                for thread in threads:
                    thread.stop()
                for thread in threads:  # one that hangs in the driver is abandoned
                    await in_thread(thread.join, 1.0)

    def _samples_often(self) -> bool:
        """Return whether NVML is all that tells the memory of jobs: the driver may count it."""
        return self.limits is None or self.limits.decision.enforcement != "Driver"

    def _on_samples(self, samples: list[GPUSample] | NVMLError) -> None:
        if isinstance(samples, NVMLError):
            self.gpu_health.sampling_error = samples
            self._on_error(samples)
            return
        self.gpu_health.sampled(time.monotonic())
        self.jobs.add_samples(samples)
        if self.mps is not None and self.mps.read_log():
            self._check_and_report()
        if self.jobs.exits.undecided:
            self._check_now.set()

    def _on_event(self, xid: int | NVMLError) -> None:
        if isinstance(xid, NVMLError):
            self.gpu_health.event_error = xid
            self._on_error(xid)
            return
        self.gpu_health.event(xid, time.monotonic())
        if self.mps is not None and xid in FATAL_TO_CLIENTS and not self._isolates_faults():
            self.mps.report_fault(f"Xid {xid}")
        self._check_and_report()

    def _on_error(self, error: NVMLError) -> None:
        if isinstance(error, GPULostError) and not self._lost.done():
            self._log.error("the GPU is lost", error=str(error))
            self.health.set(Source.GPU, HealthProblem.of(error))
            self._lost.set_result(error)
            self.report_now.set()
            self.setup.restart_mps()

    def _check_and_report(self) -> None:
        """Check and report at once: the operator waits only a few seconds for a fault report."""
        self._check_now.set()
        self.report_now.set()

    # Health

    def report_wedge(self, message: str) -> None:
        """Record that MPS is wedged: its jobs are lost, and it is restarted at once."""
        if self.mps is not None:
            self.mps.report_wedge(message, time.monotonic())
            self._check_and_report()

    async def _check(self) -> NoReturn:
        while True:
            now = time.monotonic()
            await self._check_gpu(now)
            if self.mps is not None:
                await self._check_mps(self.mps, now)
            await self._check_kubelet()
            if self.health.faulted:
                self.report_now.set()
            pause = self.times.check_every
            if self.mps is not None and self.mps.is_unsettled:
                pause /= 10
            elif not self.health.conditions().ready:
                pause /= 5
            await event_or_timeout(self._check_now, pause)

    async def _check_kubelet(self) -> None:
        """Check that kubelet can prepare claims: the Node says only after 40 s that it does not."""
        socket, message = self.settings.pod_resources, ""
        if not self.dra.registration.registered:
            message = f"kubelet has not registered the driver {DRIVER}: it must be 1.34 or newer"
        elif not await accepts_connections(socket):
            message = f"kubelet does not answer on {socket}: check that it runs"
        problem = HealthProblem("NotRegistered", message) if message else None
        self.health.set(Source.KUBELET, problem)

    async def _check_mps(self, mps: MPSHealth, now: float) -> None:
        report = self.setup.mps_report()
        self.health.set(Source.MPS_OPTIONS, self.gpu.selection.problem(report))
        for end in await self.jobs.exits.decide(time.time(), partial(read_pod, self.kube)):
            mps.report_unclean_end(end, now)
        mps.single_user = report is not None and report.single_user
        await mps.check(now)
        self.jobs.processes.mps_server = mps.server
        if (sample := self.jobs.sample) is not None:
            self._unlisted.check(mps.clients, sample.memory, sample.unattributed, now)
        if report is not None:
            with suppress(MPSError):
                await self.slot_limits.reconcile(report.daemon, mps.clients)

    def _isolates_faults(self) -> bool:
        """Return whether a fatal Xid may concern a single job: then MPS decides.

        With static SM partitions a fault of an SM ends only the clients of its partition
        (`partita.agent.mps.sm_partitions`). The Xid does not tell whether it was such a fault. It
        is an assumption that after any other fault the server's state is FAULT or its log reports
        it.
        """
        report = self.setup.mps_report()
        return report is not None and bool(report.sm_partitions)

    async def _check_gpu(self, now: float) -> None:
        """Check the GPU.

        Raises
        ------
        DeviceAccessLostError
            It is so for longer than a moment: kubelet makes the container anew.
        """
        error: NVMLError | None = None
        try:
            recovery = await in_thread(
                self.gpu.device.recovery_action, deadline=self.times.driver_answers_within
            )
            self.gpu_health.check(recovery, now)
        except NVMLError as raised:
            self._on_error(raised)
            error = raised
        if self.gpu_health.answered(error, now):
            self._read_anew.set()
