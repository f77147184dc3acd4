"""The demo of workloads: services, a notebook and a Job beside SharedGPUJobs on the same GPUs."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from partita.cli import terminal
from partita.cli.cluster.install import create
from partita.kube.client import CLAIM_TEMPLATES, JOBS, Kind, Kube
from partita.models import Phase
from partita.scheduling.reasons import Reason
from partita.store.state import State
from partita_testcluster.cli.demo_clock import DemoClock
from partita_testcluster.cli.demo_events import DemoEvents, settled
from partita_testcluster.cli.demo_result import DemoReport
from partita_testcluster.cli.demo_stage import STARTED_WITHIN, DemoStage, EventSource
from partita_testcluster.cli.examples import Examples
from partita_testcluster.cli.workload_history import WorkloadHistory, WorkloadRecord
from partita_testcluster.cli.workload_result import workload_rows, workload_summary

__all__ = ["WorkloadsDemo"]

_DEPLOYMENTS: Final = Kind("apps", "v1", "deployments", "Deployment", namespaced=True)
_STATEFUL_SETS: Final = Kind("apps", "v1", "statefulsets", "StatefulSet", namespaced=True)
_BATCH_JOBS: Final = Kind("batch", "v1", "jobs", "Job", namespaced=True)
_KINDS: Final = {
    kind.kind: kind for kind in (CLAIM_TEMPLATES, _DEPLOYMENTS, _STATEFUL_SETS, _BATCH_JOBS, JOBS)
}
_SIMULATED_LIMIT: Final = 900.0
"""Simulated seconds that each step may take; all of them together take about 300."""
_SCALED: Final = 4
"""Replicas of the Deployment for a while: more than services may have."""


class WorkloadsDemo:
    """Services and batch that share GPUs.

    Parameters
    ----------
    examples
        The partition and its namespaces.
    objects
        The claim templates, the workloads and the jobs.
    clock
        The simulated time.
    """

    flags = "--workloads "
    page = "how-to/run-workloads.md"
    try_next = (
        ("partita workloads -n team-vision", "services and batch Pods, and their slices"),
        ("partita explain deployment/chat -n team-vision", "why a Pod waits or runs where it does"),
        ("kubectl scale -n team-vision deploy/chat --replicas=5", "the queue of services"),
        ("partita top", "GPUs and queue, live"),
        ("partita console", "the same as a web page"),
    )
    """Commands to try on the cluster, and what they show."""

    def __init__(
        self, examples: Examples, objects: Sequence[dict[str, Any]], clock: DemoClock
    ) -> None:
        self._before = examples.before
        self._partition = examples.partition.metadata.name
        self._templates = [o for o in objects if o["kind"] == CLAIM_TEMPLATES.kind]
        self._services = [o for o in objects if o["kind"] in {"Deployment", "StatefulSet"}]
        submitted = [*self._templates, *self._services]
        self._batch = [o for o in objects if o not in submitted]
        self._history = WorkloadHistory(clock)
        self.sources: tuple[EventSource, ...] = (DemoEvents(clock), self._history)
        self.intro = "A model server, a notebook, a Job and three SharedGPUJobs"
        self.gpus = examples.partition.spec.gpus

    async def play(self, stage: DemoStage) -> list[str]:
        """Submit services and batch, scale a service, and wait for the end of the batch.

        Returns
        -------
        list of str
            The exceeded time limit; empty if everything happened in time.
        """
        stage.screen.step(
            f"applying the partition: the operator reserves {self.gpus} GPUs for shared use"
        )
        for body in self._before:
            await create(stage.box.kube, body)
        if late := await stage.gpus_ready(self.gpus):
            return late
        stage.clock.began = datetime.now(UTC)
        speed = stage.clock.speed
        services = (
            "submitting the services: a Deployment of 2 replicas and a notebook; "
            f"{speed:g} simulated seconds take one second"
        )
        steps = (
            (
                services,
                self._submit_services,
                self._services_run,
            ),
            (
                "submitting the batch: a Job and 3 SharedGPUJobs, into the same queue",
                self._submit_batch,
                self._batch_started,
            ),
            (
                f"scaling the Deployment to {_SCALED} replicas, more than services may have",
                self._scale_up,
                self._is_limited,
            ),
            ("scaling the Deployment back to 2 replicas", self._scale_down, self._has_ended),
        )
        limit = STARTED_WITHIN + _SIMULATED_LIMIT / speed
        for text, act, until in steps:
            stage.screen.step(text)
            await act(stage.box.kube)
            if not await stage.watch(until, limit):
                return [f"this had no effect within {limit:.0f} s: {text}"]
        return []

    def report(self, stage: DemoStage, state: State) -> DemoReport:
        """Return the result."""
        partition = state.partitions[self._partition]
        total = sum(
            partition.spec.allocatable(server.status.memory)
            for server in state.servers_of(self._partition)
        )
        table = workload_rows(self._history, list(state.jobs.values()), stage.clock)
        picture = workload_summary(
            table,
            self._history,
            stage.clock,
            width=terminal.console().width,
            gpus=self.gpus,
            allocatable=total,
        )
        wrong = [
            f"{job.key} should be Succeeded, but is {job.status.phase or 'new'} {job.status.reason}"
            for job in state.jobs.values()
            if job.status.phase is not Phase.SUCCEEDED
        ]
        wrong += [
            f"Pod {one.namespace}/{one.name} has {one.outcome}"
            for one in self._history.workloads.values()
            if one.outcome.startswith("failed")
        ]
        running = sorted(one.application for one in self._services_of() if not one.outcome)
        if running != ["Deployment/chat", "Deployment/chat", "StatefulSet/notebook"]:
            wrong.append(f"two replicas and a notebook should run, but {running} do")
        return DemoReport(table, picture, wrong)

    # What is done, and what is waited for.

    async def _submit_services(self, kube: Kube) -> None:
        await self._create(kube, [*self._templates, *self._services])

    async def _submit_batch(self, kube: Kube) -> None:
        await self._create(kube, self._batch)

    async def _create(self, kube: Kube, objects: Sequence[dict[str, Any]]) -> None:
        for body in objects:
            await kube.create(_KINDS[body["kind"]], body)

    async def _scale_up(self, kube: Kube) -> None:
        await self._scale(kube, _SCALED)

    async def _scale_down(self, kube: Kube) -> None:
        await self._scale(kube, 2)

    async def _scale(self, kube: Kube, replicas: int) -> None:
        body = next(o for o in self._services if o["kind"] == "Deployment")
        name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
        patch = {"spec": {"replicas": replicas}}
        await kube.patch(_DEPLOYMENTS, name, patch, namespace=namespace)

    def _services_of(self) -> list[WorkloadRecord]:
        return [one for one in self._history.workloads.values() if one.lasting]

    def _services_run(self, _: State) -> bool:
        return sum(one.placed for one in self._services_of()) == 3

    def _batch_started(self, state: State) -> bool:
        """Return whether each job has a slice or waits for a reason, and the Job has a slice."""
        batch = [one for one in self._history.workloads.values() if not one.lasting]
        jobs = [job.status for job in state.jobs.values()]
        decided = all(s.attempts or s.reason not in {"", Reason.SCHEDULING} for s in jobs)
        return decided and len(jobs) == 3 and any(one.placed for one in batch)

    def _is_limited(self, _: State) -> bool:
        """Return whether the third replica has a slice, and the fourth waits for the limit."""
        services = self._services_of()
        limited = any(Reason.SERVICES_LIMIT in one.waited for one in services)
        return limited and sum(one.placed for one in services) >= _SCALED

    def _has_ended(self, state: State) -> bool:
        batch = [one for one in self._history.workloads.values() if not one.lasting]
        succeeded = sum(one.outcome == "succeeded" for one in batch)
        services = sum(not one.outcome for one in self._services_of())
        return succeeded >= 2 and services == 3 and all(map(settled, state.jobs.values()))
