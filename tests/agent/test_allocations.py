"""What an agent does with a GPUServer that cannot be read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import structlog

from partita.agent.allocations import AllocationReader
from partita.agent.gpu_report import JobReport
from partita.agent.running_jobs import RunningJobs
from partita.agent.settings import AgentSettings
from partita.agent.times import AgentTimes
from partita.agent.usage.job_usage import GPUSample
from partita.kube.client import SERVERS, Kind, Kube
from partita.models import SharingMode
from partita.models.profile import application_hash

ALLOCATIONS = {
    "uid": {
        "namespace": "team-a",
        "name": "train-1.partita.dev",
        "job": "train",
        "jobUID": "uid-train",
        "pod": "train-1",
        "podUID": "pod-1",
        "memory": "1Gi",
        "since": "2026-01-02T00:00:00Z",
    }
}


class Server:
    """An API server with one GPUServer."""

    def __init__(self) -> None:
        self.allocations: Any = ALLOCATIONS
        self.version = 1

    async def get(self, kind: Kind, name: str) -> dict[str, Any]:
        assert kind is SERVERS
        status = {"allocations": self.allocations}
        meta = {"name": name, "resourceVersion": str(self.version)}
        return {"metadata": meta, "spec": {"partition": "p"}, "status": status}


def running_jobs(server: Server, processes: SimpleNamespace, mode: SharingMode) -> RunningJobs:
    """The jobs of a GPU with the allocations of this server, and these processes."""
    settings, unused = AgentSettings("p-0", mode, "node", "partita-system"), cast("Any", None)
    jobs = RunningJobs(cast("Kube", server), settings, unused, unused, AgentTimes())
    jobs.processes.pods = cast("Any", processes)
    return jobs


async def test_the_ledger_that_could_be_read_last_stays_in_force() -> None:
    server = Server()
    jobs = running_jobs(server, SimpleNamespace(), SharingMode.MPS)
    with structlog.testing.capture_logs() as logs:
        await jobs.read_ledger()
        assert await jobs.has_single_job()
        server.allocations = "none"
        await jobs.read_ledger()
        await jobs.read_ledger()
        assert list(jobs.ledger.allocations) == [("uid", "pod-1")]
        assert jobs.run_usage.measured.empty()
        assert not jobs.ledger.released()
        assert not await jobs.has_single_job(), "what cannot be told is no"
        server.allocations = {}
        await jobs.read_ledger()
    assert jobs.ledger.released()
    (said,) = [entry for entry in logs if entry["event"] == "GPUServer unreadable"]
    assert said["server"] == "p-0"
    assert said["problem"].startswith("status.allocations: ")


async def test_only_attempts_that_left_are_removed_and_an_older_version_brings_none_back() -> None:
    server = Server()
    ledger = AllocationReader(cast("Kube", server), "p-0")
    assert await ledger.read() == []
    assert await ledger.read() == []
    older = await server.get(SERVERS, "p-0")
    second = {"name": "train-2.partita.dev", "pod": "train-2", "podUID": "pod-2"}
    server.allocations, server.version = {"second": ALLOCATIONS["uid"] | second}, 2
    (removed,) = await ledger.read()
    assert removed.key == ("uid", "pod-1")
    assert ledger.apply(older, 0.0) == []
    assert list(ledger.allocations) == [("second", "pod-2")]


async def test_a_claim_that_has_never_used_the_gpu_is_idle_after_a_minute() -> None:
    server = Server()
    claim = {"namespace": "team-a", "name": "serve-gpu", "pod": "serve", "podUID": "pod-uid"}
    times = {"memory": "1Gi", "since": "2026-01-02T00:00:00Z"}
    server.allocations = {"claim": claim | times, **ALLOCATIONS}
    processes = SimpleNamespace(of=lambda _: {}, identity=lambda _: SimpleNamespace(pod=None))
    jobs = running_jobs(server, processes, SharingMode.MPS)
    await jobs.read_ledger()
    jobs.add_samples([GPUSample(at=100.0, memory={}), GPUSample(at=159.0, memory={})])
    assert jobs.usage() == {}
    jobs.add_samples([GPUSample(at=160.0, memory={})])
    (report,) = jobs.usage().items()
    assert report == ("claim", JobReport(0, 0, None, idle_since=100.0))


@pytest.mark.parametrize("mode", [SharingMode.MPS, SharingMode.TIME_SLICING])
async def test_a_run_that_ended_is_measured_with_the_applications_beside_it(
    mode: SharingMode,
) -> None:
    server = Server()
    since = {"memory": "1Gi", "since": "2026-01-02T00:00:00Z"}
    server.allocations = {
        name: {
            "namespace": f"team-{name}", "name": "gpu", "pod": name, "podUID": f"pod-{name}",
            "application": name, **since,
        }
        for name in ("a", "b", "c")
    }  # fmt: skip
    pods = {1: "pod-a", 2: "pod-b", 3: "pod-c"}
    processes = SimpleNamespace(
        of=lambda pids: {pid: pods[pid] for pid in pids},
        identity=lambda _: SimpleNamespace(pod=None),
        known=lambda pid: SimpleNamespace(pod=pods[pid], container=None),
    )
    jobs = running_jobs(server, processes, mode)
    await jobs.read_ledger()
    use = {1: 1 << 20, 2: 1 << 20}
    jobs.add_samples([GPUSample(at=100.0, memory=use), GPUSample(at=103.0, memory=use)])
    jobs.add_samples([GPUSample(at=104.0, memory={1: 1 << 20})])
    del server.allocations["a"]
    server.version = 2
    await jobs.read_ledger()
    run = jobs.run_usage.measured.get_nowait()
    expected = {(application_hash("team-b", "b"),): 3.0, (): 1.0}
    assert run.beside == (expected if mode is SharingMode.MPS else {})
