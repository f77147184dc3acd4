"""The demo of SharedGPUJobs: the examples, with one job per GPU for comparison."""

from datetime import UTC, datetime
from typing import Any, Final

from partita.cli import terminal
from partita.cli.cluster.install import create
from partita.models import Phase, SharedGPUJob
from partita.models.quantities import format_duration, parse_duration
from partita.store.state import State
from partita_testcluster.cli.demo_clock import DemoClock
from partita_testcluster.cli.demo_events import DemoEvents, settled
from partita_testcluster.cli.demo_result import DemoReport, makespan, rows, summary
from partita_testcluster.cli.demo_stage import STARTED_WITHIN, DemoStage, EventSource
from partita_testcluster.cli.examples import Examples, work_of
from partita_testcluster.cli.one_job_per_gpu import one_job_per_gpu

__all__ = ["JobsDemo"]

Json = dict[str, Any]

_SIMULATED_LIMIT: Final = 1200.0
"""Simulated seconds that the jobs may take; they take about 400."""


class JobsDemo:
    """Jobs of two teams that share GPUs.

    Parameters
    ----------
    gpu_memory
        Bytes of each GPU.
    clock
        The simulated time.
    """

    flags = ""
    page = "tutorial.md"
    try_next = (
        ("partita top", "GPUs and queue, live"),
        ("partita console", "the same as a web page"),
        ("partita explain team-hpc/hoomd-large", "why a job waits"),
        ("partita logs team-hpc/lammps-melt", "what a program printed"),
    )
    """Commands to try on the cluster, and what they show."""

    def __init__(self, examples: Examples, gpu_memory: int, clock: DemoClock) -> None:
        self._examples = examples
        self._gpu_memory = gpu_memory
        self.intro = f"{len(examples.jobs)} jobs of two teams"
        self.gpus = examples.partition.spec.gpus
        self.sources: tuple[EventSource, ...] = (DemoEvents(clock),)

    async def play(self, stage: DemoStage) -> list[str]:
        """Apply the examples and follow their jobs; return the exceeded time limits."""
        examples, speed = self._examples, stage.clock.speed
        wanted = examples.partition.spec.gpus

        def ended(state: State) -> bool:
            return len(state.jobs) >= len(examples.jobs) and all(map(settled, state.jobs.values()))

        stage.screen.step(
            f"applying the partition: the operator reserves {wanted} GPUs for shared jobs"
        )
        for body in examples.before:
            await create(stage.box.kube, body)
        if late := await stage.gpus_ready(wanted):
            return late
        stage.screen.step(
            f"submitting {len(examples.jobs)} jobs; {speed:g} simulated seconds take one second"
        )
        stage.clock.began = datetime.now(UTC)
        for body in examples.jobs:
            await create(stage.box.kube, _at_speed(body, speed))
        limit = STARTED_WITHIN + _SIMULATED_LIMIT / speed
        if not await stage.watch(ended, limit):
            return [f"not all jobs had finished within {limit:.0f} s"]
        return []

    def report(self, stage: DemoStage, state: State) -> DemoReport:
        """Return the result; a problem is a job that failed."""
        examples = self._examples
        partition = state.partitions[examples.partition.metadata.name]
        jobs = list(state.jobs.values())
        succeeded = {job.key for job in jobs if job.status.phase is Phase.SUCCEEDED}
        submitted = map(SharedGPUJob.parse, examples.jobs)
        alone = one_job_per_gpu(
            (
                (work_of(job), job.spec.retry.out_of_memory.limit)
                for job in submitted
                if job.key in succeeded
            ),
            gpus=partition.spec.gpus,
            memory=self._gpu_memory,
        )
        table = rows(jobs, stage.clock)
        picture = summary(
            table,
            width=terminal.console().width,
            taken=makespan(jobs, stage.clock),
            alone=alone,
            gpus=partition.spec.gpus,
            speed=stage.clock.speed,
            shadows=partition.status.shadow,
        )
        failed = [
            f"{job.key} has failed: {job.status.reason}"
            for job in jobs
            if job.status.phase is Phase.FAILED
        ]
        return DemoReport(table, picture, failed)


def _at_speed(job: Json, speed: float) -> Json:
    """Return a job that expects what its program takes by the operator's clock, which is real."""
    spec = job["spec"]
    if expected := spec.get("expectedDuration"):
        spec = {**spec, "expectedDuration": format_duration(parse_duration(expected) / speed)}
    return {**job, "spec": spec}
