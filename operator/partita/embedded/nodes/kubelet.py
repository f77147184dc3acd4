"""Pretends to run the Pods of all simulated machines, as their kubelets would."""

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import IntEnum
from functools import partial
from typing import Any, Final

import structlog

from partita.constants import GPU_RESOURCE
from partita.embedded.nodes.agent import Agent, Agents
from partita.embedded.nodes.api import API, ApiError
from partita.embedded.nodes.binder import Binder
from partita.embedded.nodes.node import Clock, Device, Machine, Tenant
from partita.embedded.nodes.pods import ENDED_PHASES, BadAnnotationError, SimulatedPod, parse_pod
from partita.embedded.nodes.scheduler import Cluster
from partita.embedded.nodes.status import Exit, pod_ended, pod_running

__all__ = ["PODS", "Kubelet"]

log = structlog.get_logger(__name__)

PODS: Final = "/api/v1/pods"
DEFAULT_SCHEDULER: Final = "default-scheduler"
_LOST: Final = Exit(
    137, "ContainerStatusUnknown", "The node was restarted; its containers are gone"
)
"""What kubelet finds after its machine's restart."""
_TOO_LONG: Final = Exit(
    137,
    pod_reason="DeadlineExceeded",
    pod_message="Pod was active on the node longer than the specified deadline",
)
"""`activeDeadlineSeconds`, in real seconds: kubelet's activeDeadlineHandler."""

Body = dict[str, Any]


class _State(IntEnum):
    """What the API should say of a Pod."""

    ADMITTED = 0
    RUNNING = 1
    ENDED = 2
    GONE = 3


class _NoDeviceError(Exception):
    """A Pod is bound to a machine that does not have what it asks for."""


@dataclass(eq=False)
class _Run:
    """A Pod on a machine."""

    pod: SimulatedPod
    machine: Machine
    started: datetime
    state: _State = _State.ADMITTED
    written: _State = _State.ADMITTED
    devices: list[Device] = field(default_factory=list)
    to_end: int = 0
    agent: Agent | None = None
    end: Exit | None = None
    finished: datetime | None = None
    timers: list[asyncio.TimerHandle] = field(default_factory=list)
    writer: asyncio.Task[None] | None = None


class Kubelet:
    """The Pods of all machines.

    One write tells that a Pod runs, one that it has ended; when it ends before the first was
    made, the first is left out.

    Parameters
    ----------
    api
        The API server.
    cluster
        Who holds what on which machine.
    machines
        The machines by name.
    agents
        What goes on in server Pods.
    clock
        Virtual time.
    tasks
        Runs the calls.
    """

    def __init__(
        self,
        *,
        api: API,
        cluster: Cluster,
        machines: dict[str, Machine],
        agents: Agents,
        clock: Clock,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._api = api
        self._cluster = cluster
        self._machines = machines
        self._agents = agents
        self._clock = clock
        self._tasks = tasks
        self._runs: dict[str, _Run] = {}
        self.binder = Binder(api, cluster, tasks, self._bound)

    def observe_all(self, bodies: list[Body]) -> None:
        """Take in all Pods there are: at the start, and when the watch began anew."""
        present = {body["metadata"]["uid"] for body in bodies}
        for uid in self._runs.keys() - present:
            self._forget(uid)
        self.binder.retain(present)
        # Jobs need the GPUs of server Pods, and those need the GPU that they had before.
        for body in sorted(bodies, key=self._claim_order):
            self.observe("MODIFIED", body)

    def _claim_order(self, body: Body) -> int:
        pod = parse_pod(body)
        return (0 if self._agents.uuid_of(pod) else 1) if pod.is_server else 2

    def observe(self, kind: str, body: Body) -> None:
        """Take in a change of a Pod."""
        meta, spec = body["metadata"], body["spec"]
        uid, phase = meta["uid"], (body.get("status") or {}).get("phase")
        run = self._runs.get(uid)
        if kind == "DELETED":
            self._forget(uid)
        elif run is not None:
            if meta.get("deletionTimestamp"):
                self._terminate(run)
            elif phase in ENDED_PHASES:  # as written, or somebody else has ended it
                self._free(run)
                del self._runs[uid]
        elif not spec.get("nodeName"):
            pod = parse_pod(body)
            ours = spec.get("schedulerName", DEFAULT_SCHEDULER) == DEFAULT_SCHEDULER
            if ours and pod.wants.resources and phase not in ENDED_PHASES and not _deleted(meta):
                self.binder.add(pod)
        elif (machine := self._machines.get(spec["nodeName"])) is not None and machine.up:
            if _deleted(meta):
                self._terminate(self._adopt(parse_pod(body), machine))
            elif phase not in ENDED_PHASES:
                self._admit(parse_pod(body), machine)

    def lose(self, machine: Machine) -> None:
        """Forget what ran on a machine that is no more; nobody is told."""
        machine.up = False  # first of all: from now on it is silent
        for uid, run in list(self._runs.items()):
            if run.machine is machine:
                self._forget(uid)
        machine.power_off()

    def close(self) -> None:
        """Stop here: Pods and GPUs stay, in the API, as they are."""
        self.binder.close()
        for run in self._runs.values():
            for timer in run.timers:
                timer.cancel()
        for machine in self._machines.values():
            machine.power_off()

    def _bound(self, pod: SimulatedPod, node: str) -> None:
        machine = self._machines[node]
        if machine.up and pod.uid not in self._runs:
            self._admit(pod, machine)

    def _adopt(self, pod: SimulatedPod, machine: Machine) -> _Run:
        self.binder.forget(pod.uid)
        self._cluster.hold(pod.uid, pod.wants, machine.name)
        run = self._runs[pod.uid] = _Run(pod, machine, pod.started or datetime.now(UTC))
        return run

    def _admit(self, pod: SimulatedPod, machine: Machine) -> None:
        run = self._adopt(pod, machine)
        if pod.started and not machine.rebooted:
            run.written = _State.RUNNING
        run.state = _State.RUNNING
        try:
            if pod.is_server:
                self._start_server(run)
            elif pod.started and machine.rebooted:
                self._end(run, _LOST)
            else:
                self._start_job(run)
        except BadAnnotationError as error:
            self._end(run, Exit.of_program(1, str(error)))
        except _NoDeviceError as error:
            self._end(run, Exit.refused("UnexpectedAdmissionError", str(error)))
        self._write(run)

    def _start_server(self, run: _Run) -> None:
        server = run.pod.server()
        run.devices = [self._whole(run.machine, self._agents.uuid_of(run.pod))]
        run.devices[0].claim(run.pod.uid, server.mode)
        run.agent = self._agents.start(server, run.devices[0], run.machine)

    def _start_job(self, run: _Run) -> None:
        pod = run.pod
        for resource, count in pod.wants.resources.items():
            if resource == GPU_RESOURCE:
                for _ in range(count):
                    device = self._whole(run.machine)
                    device.claim(pod.uid, "Exclusive")
                    run.devices.append(device)
            elif (device_or_none := run.machine.device(resource)) is not None:
                run.devices.append(device_or_none)
            else:
                raise _NoDeviceError(f"no healthy devices present; cannot allocate {resource}")
        mode = run.devices[0].gpu.mode if run.devices else "Exclusive"
        task = pod.task(mode, len(run.devices) or 1)
        # Whatever it met before a restart of this program is unknown: as if it had been alone.
        elapsed = (datetime.now(UTC) - run.started).total_seconds() if pod.started else 0.0
        done = max(0.0, elapsed) * self._clock.speed
        finish = Exit.of_program(task.exit_code, task.message)
        on_end = partial(self._share_ended, run, finish)
        run.to_end = len(run.devices)
        if not run.devices:
            at = self._clock.now() + max(0.0, task.work.duration - done)
            run.timers.append(self._clock.call_at(at, partial(self._end, run, finish)))
        deadline = pod.spec.get("activeDeadlineSeconds")
        if deadline is not None:
            left = asyncio.get_running_loop().call_later(
                deadline - elapsed, partial(self._end, run, _TOO_LONG)
            )
            run.timers.append(left)
        for device in run.devices:
            if run.end is None:
                device.run(task.work, done, Tenant(pod.job_uid, task.processes, on_end))

    def _whole(self, machine: Machine, uuid: str = "") -> Device:
        free = [device for device in machine.devices if device.owner is None]
        if not free:
            raise _NoDeviceError(f"no healthy devices present; cannot allocate {GPU_RESOURCE}")
        return next((device for device in free if device.uuid == uuid), free[0])

    def _share_ended(self, run: _Run, finish: Exit, error: str) -> None:
        """Take note that a job has ended on one of its GPUs; an error ends it on all."""
        run.to_end -= 1
        if run.end is None and (error or run.to_end == 0):
            self._end(run, Exit.of_program(1, error) if error else finish)

    def _end(self, run: _Run, end: Exit) -> None:
        run.end, run.finished = end, datetime.now(UTC)
        run.state = max(run.state, _State.ENDED)
        self._free(run)
        self._write(run)

    def _terminate(self, run: _Run) -> None:
        """End a Pod that is being deleted, and let it go."""
        if run.state is not _State.GONE:
            run.state = _State.GONE
            self._free(run)
            self._write(run)

    def _forget(self, uid: str) -> None:
        self.binder.forget(uid)
        run = self._runs.pop(uid, None)
        if run is not None:
            if run.writer is not None:
                run.writer.cancel()
            self._free(run)
            if run.agent is not None:
                self._tasks.create_task(run.agent.farewell())

    def _free(self, run: _Run) -> None:
        """Give back what a Pod holds."""
        for timer in run.timers:
            timer.cancel()
        if run.agent is not None:
            self._agents.stop(run.agent)
        for device in run.devices:
            if device.owner == run.pod.uid:
                device.release()
            else:
                device.stop(run.pod.uid)
        run.devices = []
        self.binder.retry(self._cluster.release(run.pod.uid))

    def _write(self, run: _Run) -> None:
        if run.writer is None or run.writer.done():
            run.writer = self._tasks.create_task(self._write_all(run))

    async def _write_all(self, run: _Run) -> None:
        """Write what the API does not know yet, until it knows all."""
        while run.written is not run.state and run.machine.up:
            state = run.state
            try:
                await self._write_state(run, state)
            except ApiError as error:
                if error.status == 409 and await self._exists(run.pod):
                    continue
                if error.status in {404, 409}:
                    run.writer = None  # not to be cancelled: that is us
                    self._forget(run.pod.uid)
                    return
                log.error("not written", pod=run.pod.name, error=str(error))  # noqa: TRY400
            run.written = state

    async def _exists(self, pod: SimulatedPod) -> bool:
        """Tell whether the Pod of this name is still this one."""
        try:
            uid = (await self._api.get(pod.path))["metadata"]["uid"]
        except ApiError:
            return False
        return bool(uid == pod.uid)

    async def _write_state(self, run: _Run, state: _State) -> None:
        pod, containers = run.pod, run.pod.spec["containers"]
        if state is _State.RUNNING:
            patch = pod_running(pod.uid, containers, run.started)
            await self._api.patch(f"{pod.path}/status", patch)
        elif state is _State.GONE:
            if run.agent is not None:
                await run.agent.farewell()
            options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.uid}}
            await self._api.delete(pod.path, options)
        elif run.end is not None and run.finished is not None:
            patch = pod_ended(pod.uid, containers, run.started, run.finished, run.end)
            await self._api.patch(f"{pod.path}/status", patch)


def _deleted(meta: Body) -> bool:
    return bool(meta.get("deletionTimestamp"))
