"""What `kubectl get sgj` shows about jobs that wait: the request, and positions without gaps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.queues import LONG

if TYPE_CHECKING:
    from support.system import System

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


async def kubectl_get(system: System) -> list[dict[str, Any]]:
    """Return the rows of `kubectl get sharedgpujobs`, by column."""
    path = f"/apis/partita.dev/v1alpha1/namespaces/{system.namespace}/sharedgpujobs"
    table = (await system.api.call("GET", path, accept=TABLE)).ok().body
    columns = table["columnDefinitions"]
    return [
        {
            c["name"]: cell
            for c, cell in zip(columns, row["cells"], strict=True)
            if not c["priority"]
        }
        for row in table["rows"]
    ]


async def test_positions_follow_the_queue_without_gaps_and_the_request_is_shown(
    system: System,
) -> None:
    system.set_times(refresh=0.5)
    async with system.running(1):
        partition = await system.partition(policy={"name": "fifo"})
        runs = await system.job("runs", partition, gpuMemory="30Gi", sim=LONG)
        await runs.runs()
        never = await system.job("never", partition, gpuMemory="400Gi")
        await never.until(lambda s: s.get("reason") == "NeverFits")
        waiting = []
        for number in range(1, 4):
            job = await system.job(f"waits-{number}", partition, gpuMemory="30Gi", sim=LONG)
            await job.until(lambda s, number=number: s.get("queuePosition") == number)
            waiting.append(job)
        rows = {row["Name"]: row for row in await kubectl_get(system)}
        assert [rows[name]["Requested"] for name in ("waits-1", "runs")] == ["30Gi", "30Gi"]
        assert [rows[name]["Allocated"] for name in ("waits-1", "runs")] == [None, "30Gi"]
        assert rows["never"]["Position"] is None
        await waiting[0].delete()
        # Nothing else happens: only the operator itself can close the gap.
        for position, job in enumerate(waiting[1:], start=1):
            await job.until(lambda s, position=position: s.get("queuePosition") == position)
