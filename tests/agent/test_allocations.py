"""What an agent does with a GPUServer that cannot be read."""

from __future__ import annotations

from typing import Any, cast

import structlog

from partita.agent.processes import PodsOfProcesses
from partita.agent.running_jobs import RunningJobs
from partita.kube.client import PODS, Kind, Kube
from partita.kube.errors import NotFoundError
from partita.kube.events import Events
from partita.models import SharingMode

ALLOCATIONS = {
    "uid": {
        "namespace": "team-a",
        "name": "train",
        "attempt": 1,
        "memory": "1Gi",
        "since": "2026-01-02T00:00:00Z",
    }
}


class Server:
    """An API server with one GPUServer and no Pods."""

    def __init__(self) -> None:
        self.allocations: Any = ALLOCATIONS

    async def get(self, kind: Kind, name: str, _namespace: str = "") -> dict[str, Any]:
        if kind is PODS:
            raise NotFoundError("get", 404, "no")
        status = {"allocations": self.allocations}
        return {"metadata": {"name": name}, "spec": {"partition": "p"}, "status": status}


async def test_the_ledger_that_could_be_read_last_stays_in_force() -> None:
    server = Server()
    jobs = RunningJobs(
        cast("Kube", server),
        "p-0",
        cast("Events", None),
        SharingMode.MPS,
        cast("Any", None),
        cast("PodsOfProcesses", None),
    )
    with structlog.testing.capture_logs() as logs:
        await jobs.poll()
        assert await jobs.alone()
        server.allocations = "none"
        await jobs.poll()
        await jobs.poll()
        assert list(jobs.allocations) == [("uid", 1)]
        assert jobs.finished.empty()
        assert not jobs.released()
        assert not await jobs.alone(), "what cannot be told is no"
        server.allocations = {}
        await jobs.poll()
    assert jobs.released()
    (said,) = [entry for entry in logs if entry["event"] == "GPUServer unreadable"]
    assert said["server"] == "p-0"
    assert said["problem"].startswith("status.allocations: ")
