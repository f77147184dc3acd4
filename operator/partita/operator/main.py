"""The operator process: acquires the Lease, lists all objects, then starts watches and loop."""

import asyncio
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, TypeVar

import kopf
import structlog
from kopf._cogs.clients.errors import APINotFoundError

from partita.accounting.usage_meter import UsageMeter
from partita.accounting.usage_recorder import UsageRecorder
from partita.decide.cycle_result import CycleResult, placements_of
from partita.garbage_collection import collect_rarely
from partita.informer.handlers import register
from partita.informer.informer import Apply
from partita.informer.kopf_storage import NoDiffs, NoMemories, NoProgress
from partita.informer.login import log_in
from partita.informer.resync import Resync
from partita.informer.state import State
from partita.informer.watched_kinds import feeds
from partita.kube.client import CLAIMS, JOBS, PAGE, PODS, SERVERS, Kind, Kube
from partita.kube.connect import Access, access_of, connect
from partita.kube.errors import NotFoundError, UnavailableError
from partita.kube.events import Events, EventSubject
from partita.kube.lease import Lease
from partita.kube.operator_lease import OPERATOR_LEASE
from partita.models import GPUPartitionStatus, SharedGPUJob, SharedGPUJobStatus
from partita.operator import crd_check
from partita.operator.image import own_image
from partita.operator.loop import Loop
from partita.operator.metrics.page import Metrics
from partita.operator.probes import Readiness, serve_health
from partita.operator.recorder import Recorder, recording
from partita.operator.settings import OperatorSettings
from partita.operator.task_shutdown import end
from partita.operator.unreadable_reports import UnreadableReports
from partita.partitions.claim_templates import ClaimTemplates
from partita.partitions.device_publisher import DevicePublisher
from partita.partitions.partition_reconciler import PartitionReconciler
from partita.partitions.partition_status import partition_status
from partita.partitions.pod_limits import explain_limits
from partita.partitions.status_writer import PartitionStatusWriter
from partita.pods.server_pod import ServerPodSettings
from partita.work_queue import utc_now
from partita_policies.recordings import Decision

__all__ = ["run_operator"]

T = TypeVar("T")
OnStatus = Callable[[SharedGPUJob, SharedGPUJobStatus], None]

WATCH_WITHIN = 5.0
"""Maximum seconds for which the initially listed jobs are processed before watches of jobs and Pods
start."""


async def run_operator(
    settings: OperatorSettings,
    kubeconfig: str | None = None,
    on_status: OnStatus = lambda *_: None,
    now: Callable[[], datetime] = utc_now,
) -> None:
    """Run until SIGTERM or SIGINT, or until the lease is lost.

    Parameters
    ----------
    kubeconfig
        Path of a kubeconfig; None uses the Pod's service account, or the default file.
    on_status
        Called with each job as it was before its status was written, and with that status.
    now
        The clock for the processing of jobs.

    Raises
    ------
    LeaseLostError
        If another operator has become the leader: the process must end.
    DefinitionError
        If a CRD is missing: the next process waits for it, and is not ready until then.
    """
    log = structlog.get_logger().bind(part="operator")
    stop = _stop_on_signals()
    async with connect(kubeconfig) as api:
        identity = settings.identity or f"{socket.gethostname()}-{os.getpid()}"
        lease = Lease(
            Kube(api),
            namespace=settings.namespace,
            name=OPERATOR_LEASE,
            identity=identity,
            duration=settings.lease_duration,
        )
        kube = Kube(api, may_write=lease.held)
        state = State(settings.server_namespace or settings.namespace, now)
        readiness = Readiness()
        meter = UsageMeter(state)
        metrics = Metrics(
            state,
            meter,
            by_namespace=settings.namespace_metrics,
            leads=lease.held,
            writes=kube.writes,
            unrecorded=lambda: recorder.left_out if recorder else None,
        )

        def on_written(job: SharedGPUJob, status: SharedGPUJobStatus) -> None:
            metrics.tally.written(job, status)
            on_status(job, status)

        async with (
            recording(settings.record, settings.record_limit) as recorder,
            serve_health(
                settings.health_port,
                readiness,
                metrics.render,
                lambda: recorder.problem if recorder else "",
            ),
        ):
            if await _stopped_before(crd_check.wait_for_crds(kube, readiness.set_not_ready), stop):
                return
            readiness.set_ready()
            if await _stopped_before(lease.acquire(), stop):
                return
            try:
                reading = asyncio.ensure_future(_read_first(kube, state, settings))
                if await _stopped_before(reading, stop):
                    return
                await _lead(
                    kube,
                    state,
                    lease,
                    settings,
                    image=reading.result().image,
                    served=reading.result().served,
                    recorder=recorder,
                    metrics=metrics,
                    meter=meter,
                    on_status=on_written,
                    access=partial(access_of, api),
                    stop=stop,
                    now=now,
                )
            finally:
                readiness.set_not_ready("the operator is being stopped")
                await lease.release()
                writes = {f"{v} {k}": n for (v, k), n in sorted(kube.writes.items())}
                log.info("stopped", writes=writes)


async def _lead(
    kube: Kube,
    state: State,
    lease: Lease,
    settings: OperatorSettings,
    *,
    image: str,
    served: Mapping[Kind, Apply],
    recorder: Recorder | None,
    metrics: Metrics,
    meter: UsageMeter,
    on_status: OnStatus,
    access: Callable[[], Awaitable[Access]],
    stop: asyncio.Event,
    now: Callable[[], datetime],
) -> None:
    log = structlog.get_logger().bind(part="operator")
    events = Events(kube)
    pods = ServerPodSettings(
        namespace=settings.server_namespace or settings.namespace,
        image=image,
        service_account=settings.service_account,
        priority_class=settings.server_priority_class,
    )

    def overview(name: str) -> GPUPartitionStatus | None:
        found = state.partitions.get(name)
        if found is None:
            return None
        problem = partitions.problems.get(name)
        return partition_status(found, state, loop.runner(name), now(), problem)

    def on_decision(result: CycleResult) -> None:
        metrics.tally.decided(result)
        if recorder is not None:
            _record(recorder, result, complete=resync.complete)

    loop = Loop(
        kube,
        state,
        events,
        on_decision=on_decision,
        on_status=on_status,
        on_claim=metrics.claims.seen,
        now=now,
    )
    statuses = PartitionStatusWriter(kube, state, overview)
    partitions = PartitionReconciler(kube, state, events, pods)
    resync = Resync(kube, state)
    early = dict(served)
    early[SERVERS] = partial(_metered, state, meter, now)
    late = {kind: early.pop(kind) for kind in (JOBS, CLAIMS, PODS) if kind in early}
    templates = ClaimTemplates(kube, state, events)

    def apply_pod(body: dict[str, Any], *, deleted: bool = False) -> None:
        state.apply_pod(body, deleted=deleted)
        meta = body["metadata"]
        templates.pod_changed(meta["uid"])
        if not deleted and (why := explain_limits(body)):
            about = EventSubject.pod(meta["namespace"], meta["name"], meta["uid"])
            events.warn(about, "LimitNotReplaced", why)

    late[PODS] = apply_pod

    async def watch_late() -> None:
        # kopf first lists all objects again and calls the handlers for each. With thousands of
        # jobs that takes seconds, which must not delay the first jobs or changes of GPUs.
        if not await _stopped_before(_started(loop), stop):
            await _watch(kube, late, resync, access, stop)

    collect_rarely()
    metrics.lead(loop.runner)
    log.info("listed", jobs=len(state.jobs), gpus=len(state.servers))
    async with asyncio.TaskGroup() as group:
        siblings = [
            group.create_task(work)
            for work in (
                lease.keep(),
                events.run(),
                partitions.run(),
                DevicePublisher(kube, state).run(),
                templates.run(),
                statuses.run(),
                resync.run(),
                UnreadableReports(kube, state, events).run(),
                UsageRecorder(kube, settings.namespace, meter, now).run(),
                crd_check.watch_crds(kube),
                loop.run(),
            )
        ]
        group.create_task(_watch(kube, early, resync, access, stop))
        group.create_task(watch_late())
        log.info("ready")
        await stop.wait()
        for task in siblings:
            task.cancel()


def _metered(
    state: State,
    meter: UsageMeter,
    now: Callable[[], datetime],
    body: dict[str, Any],
    *,
    deleted: bool = False,
) -> None:
    """Apply a GPUServer, and count its usage until now."""
    state.apply_server(body, deleted=deleted)
    meter.read_server(body["metadata"]["name"], now())


async def _started(loop: Loop) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(WATCH_WITHIN):
            await loop.started()


async def _watch(
    kube: Kube,
    feeds: Mapping[Kind, Apply],
    resync: Resync,
    access: Callable[[], Awaitable[Access]],
    stop: asyncio.Event,
) -> None:
    """Watch kinds with kopf until the operator is stopped."""

    def listed(path: str) -> None:
        for kind in feeds:
            if path.endswith(kind.path()):
                resync.relisted(kind)

    registry = kopf.OperatorRegistry()
    register(registry, feeds)
    log_in(registry, access, listed)
    # Not kopf.operator(): at its end it waits for, and then cancels, every task of the event loop
    # that was created after it, including those of other components.
    tasks = await kopf.spawn_tasks(
        registry=registry,
        settings=_kopf_settings(),
        memories=NoMemories(),
        standalone=True,
        clusterwide=True,
        stop_flag=stop,
    )
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end(lambda: tasks)
        stop.set()
    for task in tasks:
        if not task.cancelled() and (error := task.exception()) is not None:
            if isinstance(error, APINotFoundError):
                raise await crd_check.missing_crd_error(kube) from error
            raise error


def _record(recorder: Recorder, result: CycleResult, *, complete: bool) -> None:
    if result.snapshot is None or result.answer is None:
        return
    answer = result.answer
    placed = tuple(placements_of(result))
    recorder.offer(
        replace(result.snapshot, complete=complete),
        Decision(answer.policy, placed, answer.failure, answer.seconds),
    )


class _FirstRead(NamedTuple):
    image: str
    """The image of the server Pods."""
    served: Mapping[Kind, Apply]
    """The state's method for the objects of each kind that the API server serves."""


async def _read_first(kube: Kube, state: State, settings: OperatorSettings) -> _FirstRead:
    """List all objects into the state."""
    own = partial(own_image, kube, settings.namespace, settings.identity)
    image = settings.image or await _had(own)
    served = feeds(state)
    for kind, apply in list(served.items()):
        try:
            items, _ = await _had(partial(kube.list, kind))
        except NotFoundError:
            if kind is not CLAIMS:
                raise
            del served[kind]
            log = structlog.get_logger().bind(part="operator")
            log.warning(
                "the API server does not serve resource.k8s.io/v1, which needs Kubernetes 1.34: "
                "only SharedGPUJobs get slices of GPUs"
            )
            continue
        for item in items:
            apply(item)
    return _FirstRead(image, served)


async def _had(read: Callable[[], Awaitable[T]]) -> T:
    """Retry a read until the API server is available, which avoids a growing restart backoff."""
    while True:
        try:
            return await read()
        except UnavailableError as error:
            log = structlog.get_logger().bind(part="operator")
            log.warning("waiting for the API server", error=str(error))


def _kopf_settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False  # Partita writes its own Events
    settings.peering.standalone = True
    settings.persistence.diffbase_storage = NoDiffs()
    settings.persistence.progress_storage = NoProgress()
    # kopf removes its own finalizer from any object that has it, by requests for which the operator
    # has no permission. No object can have a finalizer of this name.
    settings.persistence.finalizer = "no finalizer"
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 5
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 330
    settings.watching.chunk_size = PAGE  # one page with thousands would block the loop
    settings.scanning.disabled = True
    settings.queueing.idle_timeout = 0.5  # a task and a queue for each changed object
    return settings


def _stop_on_signals() -> asyncio.Event:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def _stopped_before(work: Awaitable[Any], stop: asyncio.Event) -> bool:
    """Await some work; return whether the operator was stopped before the work was done."""
    task = asyncio.ensure_future(work)
    stopped = asyncio.ensure_future(stop.wait())
    done, pending = await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
    for other in pending:
        other.cancel()
    if task in done:
        await task
        return False
    return True
