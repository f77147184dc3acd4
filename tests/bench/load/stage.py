"""Where the scenes play: a control plane, simulated nodes, and an operator to start and stop."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any, NoReturn, TypeVar

from apiserver.build import assets
from apiserver.controlplane import ControlPlane
from apiserver.processes import ServerProcess
from bench.load.figures import LoadError
from bench.scale.client import Client, client
from bench.scale.nodes import PODS, Nodes, ended
from bench.scale.partitions import (
    PlaneWithoutCollector,
    install,
    jobs_path,
    make_namespace,
    operator_command,
)
from bench.scale.shape import JobClass, job, partition

__all__ = ["FILLING", "Key", "Stage", "Tell", "job_for", "on_stage", "partition_of"]

Json = dict[str, Any]
Key = tuple[str, str]
"""Namespace and name of a job."""
Tell = Callable[[str], None]
T = TypeVar("T")

IDLE_SECONDS = 60
"""Without any progress: then a scene is given up."""
TELL_SECONDS = 5
SUBMITTERS = 16
"""Requests under way at a time where jobs are submitted as fast as the API server takes them."""
FILLING = JobClass("job", units=5, seconds=3600, priority=0, count=0, every=0)
"""Jobs that fill a queue: four of them fill a GPU, and none ends by itself."""


def partition_of(name: str, **spec: Any) -> Json:
    """Return bench-scale's partition with another spec in part."""
    body = partition(name)
    body["spec"] |= spec
    return body


def job_for(to: str, key: Key, kind: JobClass = FILLING, **spec: Any) -> Json:
    """Return a job for a partition, with another spec in part."""
    namespace, name = key
    body = job(name, namespace, kind)
    body["spec"] |= {"partition": to, **spec}
    return body


class Operator(ServerProcess):
    """The operator, and what it logs."""

    def __init__(self, plane: ControlPlane, program: str, options: Iterable[str]) -> None:
        command = operator_command([program], plane.kubeconfig, *options)
        super().__init__(command, log=plane.kubeconfig.with_name("operator.log"))
        self._before = 0
        self.launched = 0.0
        """When it was launched last; 0 while it is not to run."""

    def begin(self) -> int:
        """Start it, and return its process id at once."""
        self._before = self.log.stat().st_size if self.log.exists() else 0
        self.launched = time.time()
        return self.launch().pid

    def end(self) -> None:
        """Stop it as Kubernetes does, and wait until it has ended."""
        self.launched = 0.0
        self.stop(grace=30)

    def said(self, event: str) -> float | None:
        """Return when it logged this since it was launched last, None where it did not."""
        if not self.log.exists():
            return None
        with self.log.open("rb") as log:
            log.seek(self._before)
            for line in log:
                if f'"event": "{event}"'.encode() in line:
                    return datetime.fromisoformat(json.loads(line)["timestamp"]).timestamp()
        return None


class Stage:
    """What a scene uses.

    Attributes
    ----------
    pods
        When the Pod of each job was seen first, by the clock.
    running
        Names of the job Pods that nobody has ended, oldest first.
    reasons
        The reason in each job's status, and when it was seen first.
    """

    def __init__(
        self,
        plane: ControlPlane,
        api: Client,
        operator: Operator,
        group: asyncio.TaskGroup,
        tell: Tell,
    ) -> None:
        self.plane = plane
        self._group = group
        self.api = api
        self.operator = operator
        self.tell = tell
        self.pods: dict[Key, float] = {}
        self.running: dict[Key, datetime] = {}
        self.reasons: dict[Key, tuple[str, float]] = {}

    def beside(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Have something done until the scene is over; if it fails, the scene does."""
        return self._group.create_task(work)

    def see_pod(self, namespace: str, name: str) -> None:
        """Take a job's Pod that was made."""
        self.pods[namespace, name.rpartition("-")[0]] = time.time()
        self.running[namespace, name] = datetime.now(UTC)

    def see_job(self, kind: str, body: Json) -> None:
        """Take a job as it is now."""
        key = body["metadata"]["namespace"], body["metadata"]["name"]
        if kind == "DELETED":
            self.reasons.pop(key, None)
            return
        reason = (body.get("status") or {}).get("reason", "")
        if reason and self.reasons.get(key, ("", 0.0))[0] != reason:
            self.reasons[key] = reason, time.time()

    async def start_operator(self) -> int:
        """Start the operator and wait until it is ready; return its process id."""
        pid = self.operator.begin()
        await self.until("operator ready", lambda: self.operator.said("ready") is not None)
        return pid

    async def until(self, what: str, count: Callable[[], int], goal: int = 1) -> None:
        """Wait until a count has come to its goal.

        Raises
        ------
        LoadError
            The operator has ended, or nothing was counted for a minute.
        """
        began = told = moved = time.monotonic()
        before = count()
        while (reached := count()) < goal:
            now = time.monotonic()
            how_far = f"{now - began:5.0f} s: {what}: {reached} of {goal}"
            if self.operator.launched and self.operator.pid is None:
                raise LoadError(f"{how_far}; the operator has ended:\n{self.operator.tail()}")
            if reached != before:
                before, moved = reached, now
            elif now - moved > IDLE_SECONDS:
                tail = self.operator.tail()
                raise LoadError(f"{how_far}, and no more for {IDLE_SECONDS} s:\n{tail}")
            if now - told >= TELL_SECONDS:
                told = now
                self.tell(how_far)
            await asyncio.sleep(0.02)

    async def submit(self, what: str, jobs: Iterable[Json]) -> None:
        """Create jobs as fast as the API server takes them, in their order."""
        bodies = list(jobs)
        waiting, made = iter(bodies), itertools.count(1)
        done = 0

        async def work() -> None:
            nonlocal done
            for body in waiting:
                await self.api.post(jobs_path(body["metadata"]["namespace"]), body)
                done = next(made)

        async with asyncio.TaskGroup() as group:
            for _ in range(SUBMITTERS):
                group.create_task(work())
            await self.until(what, lambda: done, len(bodies))

    async def all_told(self, keys: Iterable[Key]) -> None:
        """Wait until each of these jobs has its Pod or says why it waits."""
        rest = set(keys)

        def told() -> int:
            return sum(key in self.pods or key in self.reasons for key in rest)

        await self.until("jobs that run or say why not", told, len(rest))

    async def end_oldest(self) -> None:
        """Have the job that has run longest end well."""
        namespace, name = pod = next(iter(self.running))
        status = ended(self.running.pop(pod), datetime.now(UTC))
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
        await self.api.patch(path, {"status": status})


class _Over(Exception):  # noqa: N818 - nothing is wrong
    """The scene is over: what goes on beside it may end."""


async def _stop() -> NoReturn:
    raise _Over


def on_stage(
    play: Callable[[Stage], Awaitable[T]],
    *,
    gpus: int,
    namespaces: Iterable[str],
    tell: Tell,
    plane_type: type[ControlPlane] = PlaneWithoutCollector,
    program: str = "partita",
    options: Callable[[], Iterable[str]] = tuple,
) -> T:
    """Play a scene.

    Parameters
    ----------
    gpus
        How many the simulated nodes have.
    namespaces
        To be made before.
    program
        The module that is the operator.
    options
        Returns what it is told beside the usual, at its time.

    Raises
    ------
    LoadError
        It did not come to its end.
    """
    with ExitStack() as stack:
        tell("starting etcd and kube-apiserver")
        plane = stack.enter_context(plane_type(assets()))
        operator = Operator(plane, program, options())
        stack.callback(operator.stop)
        return asyncio.run(_played(play, plane, operator, gpus, namespaces, tell))


async def _played(
    play: Callable[[Stage], Awaitable[T]],
    plane: ControlPlane,
    operator: Operator,
    gpus: int,
    namespaces: Iterable[str],
    tell: Tell,
) -> T:
    async with client(plane.url, plane.token, plane.certificate) as api:
        await install(api)
        for name in namespaces:
            await make_namespace(api, name)
        # How to end a TaskGroup: https://docs.python.org/3/library/asyncio-task.html
        try:
            async with asyncio.TaskGroup() as group:
                stage = Stage(plane, api, operator, group, tell)
                nodes = Nodes(api, gpus, group, stage.see_pod)
                await nodes.create()
                group.create_task(api.watch(PODS, nodes.see))
                group.create_task(api.watch(jobs_path(), stage.see_job))
                result = await play(stage)
                group.create_task(_stop())
        except* _Over:
            pass
        return result
