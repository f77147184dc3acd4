"""What is told of a job's normal life: Events, as `kubectl describe sgj` shows them, and the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from partita.models import SharedGPUJob, SharedGPUJobStatus
from support.queues import LONG

if TYPE_CHECKING:
    from support.system import System

PHASES = ["Queued", "Running", "Succeeded"]


async def test_a_job_that_succeeds_tells_of_its_gpu_its_phases_and_its_end(system: System) -> None:
    """Who looks on, such as the traces, is told of its statuses."""
    told: dict[str | None, str] = {}

    def on_status(job: SharedGPUJob, status: SharedGPUJobStatus) -> None:
        told[status.phase] = job.metadata.name

    async with system.nodes(1), system.operator(on_status=on_status):
        partition = await system.ready_partition(policy={"name": "fifo"})
        job = await system.job("train", partition, gpuMemory="4Gi", sim=LONG)
        await job.phase("Running")
        await job.end()
        await job.succeeds()
        node = job.status["assignment"]["node"]
        expected = [
            (
                "Scheduled",
                f"attempt 1 gets 4.0 GiB on {partition}-0 (node {node}), chosen by policy fifo",
            ),
            ("Finished", "attempt 1 succeeded"),
        ]
        await system.history.until(
            lambda: len(system.history.events("train")) >= len(expected),
            what=lambda: system.history.events("train"),
        )
        assert system.history.events("train") == expected
        # Jobs of namespaces that are just being deleted are in the log, too.
        own = [entry for entry in system.logs if entry.get("job") == f"{system.namespace}/train"]
        (line,) = [entry for entry in own if entry["event"] == "placed"]
        assert line["partition"] == partition
        assert line["gpu"] == f"{partition}-0"
        assert line["reason"]
        # A Pod that runs before its job is reconciled again is never told of as Assigned.
        logged = [entry["phase"] for entry in own if entry["event"] == "job"]
        assert [phase for phase in logged if phase != "Assigned"] == PHASES
        # That it is queued is not written of a job that is soon placed.
        assert dict.fromkeys(PHASES[1:], "train").items() <= told.items()
        await system.settle()
