"""The operator process: acquires the Lease, lists all objects, then starts watches and loop."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

import structlog

from partita.accounting.usage_meter import UsageMeter
from partita.accounting.usage_recorder import UsageRecorder
from partita.claims.profile_expiry import ProfileExpiry
from partita.garbage_collection import collect_rarely
from partita.handlers import Operator
from partita.kube.client import PODS, SERVERS, Kube
from partita.kube.connect import connect
from partita.kube.events import Events, EventSubject
from partita.kube.lease import Lease
from partita.kube.operator_lease import OPERATOR_LEASE
from partita.models import GPUPartitionStatus, SharedGPUJob, SharedGPUJobStatus
from partita.partitions.claim_templates import ClaimTemplates
from partita.partitions.device_publisher import DevicePublisher
from partita.partitions.partition_reconciler import PartitionReconciler
from partita.partitions.partition_status import partition_status
from partita.partitions.pod_limits import explain_gate, explain_limits
from partita.partitions.status_writer import PartitionStatusWriter
from partita.pods.own_claims import NO_CLAIM
from partita.pods.server_pod import ServerPodSettings
from partita.process import crd_check
from partita.process.image import own_image
from partita.process.loop import Loop
from partita.process.metrics.page import Metrics
from partita.process.probes import Readiness, serve_health
from partita.process.recorder import Recorder, recording
from partita.process.settings import OperatorSettings
from partita.process.start_estimates import StartEstimates
from partita.process.steady import steadily
from partita.process.unreadable_reports import UnreadableReports
from partita.process.watches import Watches, follow, wait_until_available
from partita.scheduling.cycle_result import CycleResult, placements_of
from partita.store.informer import Apply
from partita.store.state import State
from partita.store.watched_kinds import feeds
from partita.store.work_queue import utc_now
from partita.times import Times
from partita_policies.recordings import Decision

__all__ = ["run_operator"]

SWITCH_INTERVAL = 0.001
"""Seconds for which the event loop waits at each of its steps while a thread computes, of a policy
or of expected starts. Python's default is 5 ms."""

OnStatus = Callable[[SharedGPUJob, SharedGPUJobStatus], None]
OnSeen = Callable[[dict[str, Any]], None]


async def run_operator(
    settings: OperatorSettings,
    kubeconfig: str | None = None,
    on_status: OnStatus = lambda *_: None,
    now: Callable[[], datetime] = utc_now,
    *,
    times: Times = Times(),
    stop: asyncio.Event | None = None,
    on_seen: OnSeen = lambda _: None,
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
    times
        What each part of the operator waits for.
    stop
        Ends the operator when it is set, instead of SIGTERM and SIGINT.
    on_seen
        Called with each object, or deleted object, that was listed or watched, once the operator
        takes it into account.

    Raises
    ------
    LeaseLostError
        If another operator has become the leader: the process must end.
    DefinitionError
        If a CRD is missing: the next process waits for it, and is not ready until then.
    """
    log = structlog.get_logger().bind(part="operator")
    stop = stop or _stop_on_signals()
    # The Lease has a connection of its own: writes that a webhook delays may take all others.
    async with connect(kubeconfig) as api, connect(kubeconfig) as own:
        identity = settings.identity or f"{socket.gethostname()}-{os.getpid()}"
        lease = Lease(
            Kube(own, times=times, manager=OPERATOR_LEASE),
            namespace=settings.namespace,
            name=OPERATOR_LEASE,
            identity=identity,
            duration=settings.lease_duration,
        )
        kube = Kube(api, may_write=lease.held, times=times, manager=OPERATOR_LEASE)
        namespace = settings.server_namespace or settings.namespace
        state = State(namespace, now, archives=True)
        readiness = Readiness()
        metrics = Metrics(
            state,
            UsageMeter(state, by_namespace=settings.namespace_metrics),
            leads=lease.held,
            writes=kube.writes,
            unrecorded=lambda: recorder.left_out if recorder else None,
        )

        def on_written(job: SharedGPUJob, status: SharedGPUJobStatus) -> None:
            metrics.tally.written(job, status)
            on_status(job, status)

        async with (
            recording(settings.record, settings.record_limit, times) as recorder,
            serve_health(
                settings.health_port,
                readiness,
                metrics.registry,
                lambda: recorder.problem if recorder else "",
            ),
        ):
            defined = crd_check.wait_for_crds(kube, readiness.set_not_ready, times)
            if await _stopped_before(defined, stop):
                return
            readiness.why_not = ""
            if not await lease.acquire(stop.is_set):
                return
            try:
                await _lead(
                    kube,
                    state,
                    lease,
                    settings,
                    recorder=recorder,
                    metrics=metrics,
                    on_status=on_written,
                    on_seen=on_seen,
                    stop=stop,
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
    recorder: Recorder | None,
    metrics: Metrics,
    on_status: OnStatus,
    on_seen: OnSeen,
    stop: asyncio.Event,
) -> None:
    log = structlog.get_logger().bind(part="operator")
    events, meter = Events(kube), metrics.meter
    templates = ClaimTemplates(kube, state, events)
    watched = {kind: feed.apply for kind, feed in feeds(state).items()}
    watched[SERVERS] = partial(_metered, state, meter)
    watched[PODS] = partial(_pod_changed, state, templates, events)
    watched = {kind: partial(_seen, apply, on_seen) for kind, apply in watched.items()}
    watches = Watches(kube, state, watched)
    async with asyncio.TaskGroup() as group:
        # Thousands of objects may take longer to read than the Lease is valid.
        keeping = group.create_task(lease.keep())
        reading = group.create_task(_read_first(kube, settings, watches))
        await _stopped_before(reading, stop)
        keeping.cancel()
    if stop.is_set():  # also if the signal came with the last list
        return
    pods = ServerPodSettings(
        namespace=settings.server_namespace or settings.namespace,
        image=reading.result(),
        service_account=settings.service_account,
        priority_class=settings.server_priority_class,
        kubelet_directory=settings.kubelet_directory,
    )

    def overview(name: str) -> GPUPartitionStatus | None:
        found = state.partitions.get(name)
        if found is None:
            return None
        problem = partitions.problems.get(name)
        accuracy = dict(starts.accuracy()).get(name)
        return partition_status(
            found, state, loop.runner(name), state.now(), problem, starts=accuracy
        )

    def on_decision(result: CycleResult) -> None:
        metrics.tally.decided(result)
        starts.decided(result)
        if recorder is not None:
            _record(recorder, result, complete=watches.complete)

    loop = Loop(
        kube,
        state,
        events,
        on_decision=on_decision,
        past_shares=meter.past_shares,
        on_status=on_status,
        on_claim=metrics.claims.seen,
    )
    starts = StartEstimates(state, loop.reconcilers, loop.runner, kube.times)
    statuses = PartitionStatusWriter(kube, state, overview)
    partitions = PartitionReconciler(kube, state, events, pods)
    collect_rarely()
    sys.setswitchinterval(SWITCH_INTERVAL)
    metrics.lead(loop.runner, starts.accuracy)
    log.info("listed", jobs=len(state.jobs), finished=len(state.finished), gpus=len(state.servers))
    tasks: list[asyncio.Task[None]] = []
    async with asyncio.TaskGroup() as group:

        def start() -> None:
            steady = (
                events.run,
                partitions.run,
                DevicePublisher(kube, state).run,
                templates.run,
                ProfileExpiry(kube, state).run,
                statuses.run,
                UnreadableReports(kube, state, events).run,
                UsageRecorder(kube, settings.namespace, meter, state.now).run,
                starts.run,
            )
            tasks.extend(
                group.create_task(work)
                for work in (
                    lease.keep(),
                    crd_check.watch_crds(kube),
                    crd_check.explained(kube, watches.run),
                    loop.run(),
                    *(steadily(work, kube.times) for work in steady),
                )
            )
            log.info("ready")

        operator = Operator(kube, watches.versions(), watched, start, state.jobs)
        await crd_check.explained(kube, partial(follow, operator, stop))
        for task in tasks:
            task.cancel()


async def _read_first(kube: Kube, settings: OperatorSettings, watches: Watches) -> str:
    """List all objects into the state; return the image of the server Pods."""
    own = partial(own_image, kube, settings.namespace, settings.identity)
    image = settings.image or await wait_until_available(own, kube.times)
    await watches.list()
    return image


def _seen(apply: Apply, on_seen: OnSeen, body: dict[str, Any], *, deleted: bool = False) -> None:
    """Apply an object, and report it."""
    apply(body, deleted=deleted)
    on_seen(body)


def _metered(
    state: State,
    meter: UsageMeter,
    body: dict[str, Any],
    *,
    deleted: bool = False,
) -> None:
    """Apply a GPUServer, and count its usage until now."""
    state.apply_server(body, deleted=deleted)
    meter.read_server(body["metadata"]["name"], state.now())


def _pod_changed(
    state: State,
    templates: ClaimTemplates,
    events: Events,
    body: dict[str, Any],
    *,
    deleted: bool = False,
) -> None:
    """Apply a Pod; create the claim templates that it lacks, and report why it never starts."""
    state.apply_pod(body, deleted=deleted)
    meta = body["metadata"]
    templates.pod_changed(meta["uid"])
    if deleted:
        return
    about = EventSubject.pod(meta["namespace"], meta["name"], meta["uid"])
    if why := explain_limits(body):
        events.warn(about, "LimitNotReplaced", why)
    if why := explain_gate(body):
        events.warn(about, NO_CLAIM, why)


def _record(recorder: Recorder, result: CycleResult, *, complete: bool) -> None:
    if result.snapshot is None or result.answer is None:
        return
    answer = result.answer
    placed = tuple(placements_of(result))
    recorder.offer(
        replace(result.snapshot, complete=complete),
        Decision(answer.policy, placed, answer.failure, answer.seconds),
    )


def _stop_on_signals() -> asyncio.Event:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def _stopped_before(work: Awaitable[Any], stop: asyncio.Event) -> bool:
    """Await some work; return whether the operator was stopped before the work was done."""
    task = asyncio.ensure_future(work)
    stopped = asyncio.ensure_future(stop.wait())
    try:
        done, _ = await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        task.cancel()
        stopped.cancel()
    if task in done:
        await task
        return False
    return True
