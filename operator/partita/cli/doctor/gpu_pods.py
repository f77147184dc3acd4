"""Runs two small programs on a GPU, and removes what it created."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from partita.cli.doctor.check_result import CheckResult, not_checked, ok, problem
from partita.cli.doctor.gpu_objects import Place, claim, job, pod
from partita.cli.doctor.gpu_results import (
    GPU_CHECKS,
    fact_results,
    limit_results,
    memory_result,
    steps_of,
)
from partita.kube.client import CLAIMS, JOBS, PODS, SERVERS, Kind, Kube
from partita.kube.errors import KubernetesError, NotFoundError
from partita.models import GPUServer, Phase, SharedGPUJob
from partita.times import Times

__all__ = ["GPUTest"]

Json = dict[str, Any]
T = TypeVar("T")

_POLL: Final = 0.5
_LOG_END: Final = 300
"""Characters of a log's last line that a message quotes."""
_ENDED: Final = {"Succeeded", "Failed"}


class _NotRunError(Exception):
    """The test could not be carried out; the message says why."""


@dataclass
class GPUTest:
    """One run of the test.

    Parameters
    ----------
    image
        Partita's image.
    runtime_class
        RuntimeClass of a Pod that gets a whole GPU; empty for the node's default runtime.
    say
        Takes a line of progress.
    times
        How long the programs and their results are waited for.
    """

    kube: Kube
    place: Place
    name: str
    namespace: str
    image: str
    runtime_class: str
    say: Callable[[str], None]
    times: Times
    facts: Json = field(default_factory=dict)
    """What the program said of the GPU and its container."""

    async def run(self) -> list[CheckResult]:
        """Create the Pods, read what they say, and delete them, also after Ctrl-C."""
        try:
            results = await (self._jobs() if self.place.partition else self._whole_gpu())
        except (_NotRunError, KubernetesError) as error:
            results = [not_checked(str(error)).of(check) for check in GPU_CHECKS]
        return [result.of(result.check, self.place.node) for result in results]

    async def _whole_gpu(self) -> list[CheckResult]:
        body = pod(
            self.name, self.namespace, self.place, self.image, runtime_class=self.runtime_class
        )
        async with AsyncExitStack() as created:
            if self.place.claimed:
                own = claim(self.name, self.namespace)
                await created.enter_async_context(self._created(CLAIMS, own))
            await created.enter_async_context(self._created(PODS, body))
            self.say(f"Pod {self.namespace}/{self.name} tests a free GPU of {self.place.node}")
            await self._until_started(self.name)
            problem = "the test program does not end: MPS may hang"
            await self._until(self._ended, self.times.test_run, problem)
            steps = await self._steps(self.name)
        results = self._results(steps, steps)
        if {"limit", "facts"} <= steps.keys():
            results.append(memory_result(steps["facts"], steps["limit"]))
        return results

    async def _jobs(self) -> list[CheckResult]:
        names = {role: f"{self.name}-{role}" for role in ("neighbour", "limit")}
        bodies = {
            role: job(
                name, self.namespace, self.place, self.image, role, hold=round(self.times.test_hold)
            )
            for role, name in names.items()
        }
        async with self._created(JOBS, bodies["neighbour"]):
            self.say(f"Jobs {self.namespace}/{self.name}-* test partition {self.place.partition}")
            beside = await self._running(names["neighbour"])
            await self._said(names["neighbour"], "neighbour")
            async with self._created(JOBS, bodies["limit"]):
                limited = await self._running(names["limit"])
                reporting = await self._reported(beside)
                steps = await self._said(names["limit"], "limit")
                others = await self._steps(f"{names['neighbour']}-1")
        results = self._results(steps, others)
        if _gpus(limited) != _gpus(beside):
            text = "the policy placed the two jobs on different GPUs"
            results = [f for f in results if f.check != "isolation"]
            results.append(not_checked(text).of("isolation"))
        return [*results, reporting]

    async def _running(self, name: str) -> SharedGPUJob:
        """Wait for the first Pod of a job to start."""

        async def started() -> bool:
            status = (await self._job(name)).status
            self._waits = status.message
            return status.phase in {Phase.RUNNING, Phase.SUCCEEDED, Phase.FAILED}

        await self._until(started, self.times.test_start, f"job {name} does not start")
        await self._until_started(f"{name}-1")
        return await self._job(name)

    async def _job(self, name: str) -> SharedGPUJob:
        return SharedGPUJob.parse(await self.kube.get(JOBS, name, self.namespace))

    async def _said(self, name: str, step: str) -> dict[str, Json]:
        """Wait for the program of a job to report this step, or an error; return its steps."""

        async def said() -> dict[str, Json]:
            steps = await self._steps(f"{name}-1")
            return steps if {step, "error"} & steps.keys() else {}

        problem = "the test program gives no answer: MPS may hang"
        return await self._until(said, self.times.test_run, problem)

    async def _reported(self, beside: SharedGPUJob) -> CheckResult:
        """Wait for the GPUServer's report of the neighbour's memory."""
        assignment, uid = beside.status.assignment, beside.metadata.uid
        name = assignment.servers[0] if assignment is not None else ""

        async def memory() -> int:
            server = GPUServer.parse(await self.kube.get(SERVERS, name))
            entries, uses = server.status.allocations.items(), server.status.uses
            claims = (claim for claim, entry in entries if entry.job_uid == uid)
            return max((uses[claim].peak_memory for claim in claims if claim in uses), default=0)

        try:
            found = await self._until(memory, self.times.test_report, "")
        except _NotRunError:
            return problem(
                f"GPUServer {name} does not report the memory of the test job",
                f"look at the log of its agent: kubectl -n partita-servers logs {name} agent",
            ).of("reporting")
        text = f"GPUServer {name} reports {found >> 20} MiB for the neighbour"
        return ok(text).of("reporting")

    def _results(self, steps: dict[str, Json], others: dict[str, Json]) -> list[CheckResult]:
        self.facts = {k: v for k, v in steps.get("facts", {}).items() if k not in {"step", "time"}}
        results = list(fact_results(self.facts)) if self.facts else []
        failed = steps.get("error") or others.get("error")
        if failed or "limit" not in steps or "neighbour" not in others:
            said = failed["message"] if failed else f"the test program ended: {self._log_end}"
            remedy = "check that CUDA programs run in Pods on this node"
            return [
                *results,
                problem(said, remedy).of("memory-limit"),
                not_checked("the test of the memory limit failed").of("isolation"),
            ]
        return [*results, *limit_results(steps["limit"], others["neighbour"])]

    async def _until_started(self, name: str) -> None:
        async def started() -> bool:
            body = await self.kube.get(PODS, name, self.namespace)
            status = body.get("status") or {}
            self._waits = _waiting_reason(status)
            return status.get("phase") in {"Running", *_ENDED}

        await self._until(started, self.times.test_start, f"Pod {name} does not start")

    async def _ended(self) -> bool:
        body = await self.kube.get(PODS, self.name, self.namespace)
        return (body.get("status") or {}).get("phase") in _ENDED

    async def _steps(self, name: str) -> dict[str, Json]:
        lines = self.kube.log(name, self.namespace, "check", tail=None)
        log = b"".join([chunk async for chunk in lines])
        self._log_end = log.decode(errors="replace").strip().rpartition("\n")[2][-_LOG_END:]
        return steps_of(log)

    _log_end: str = ""
    """The last line of the last log that was read."""
    _waits: str = ""
    """Why the last object that was awaited waits."""

    async def _until(self, ask: Callable[[], Awaitable[T]], seconds: float, otherwise: str) -> T:
        """Ask again and again until there is an answer.

        Raises
        ------
        _NotRunError
            There is none within `seconds`.
        """
        try:
            async with asyncio.timeout(seconds):
                while not (answer := await ask()):  # noqa: ASYNC110 - no event of ours
                    await asyncio.sleep(_POLL)
                return answer
        except TimeoutError:
            reason = f": {self._waits}" if self._waits else ""
            raise _NotRunError(f"{otherwise} within {seconds:g} s{reason}") from None

    @asynccontextmanager
    async def _created(self, kind: Kind, body: Json) -> AsyncIterator[None]:
        """Create an object and delete it at the end of the block.

        Its name is random, so that no other object is deleted even if the answer of the creation
        was lost.
        """
        name = body["metadata"]["name"]
        try:
            await self.kube.create(kind, body)
            yield
        finally:
            try:
                await self.kube.delete(kind, name, self.namespace)
            except NotFoundError:
                pass
            except KubernetesError as error:
                self.say(f"{kind.kind} {self.namespace}/{name} is left, delete it: {error.message}")


def _gpus(job: SharedGPUJob) -> tuple[str, ...]:
    return () if job.status.assignment is None else tuple(job.status.assignment.gpus)


def _waiting_reason(status: Json) -> str:
    """Return why a Pod waits, as its status says."""
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason"):
            return ": ".join(filter(None, (waiting["reason"], waiting.get("message"))))
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return str(condition.get("message", ""))
    return ""
