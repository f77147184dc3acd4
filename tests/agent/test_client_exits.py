"""Which MPS clients ended cleanly."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent.entries import job_entry
from partita.agent.allocations import LedgerEntry
from partita.agent.mps.client_exits import (
    CONTAINER_ENDS_WITHIN,
    ClientEnd,
    ClientExits,
    JobClient,
    container_end,
)
from partita.kube.errors import KubernetesError

JOB = job_entry("job", pod_uid="pod-uid")
MAIN, OTHER = "a" * 64, "b" * 64
CLIENT = JobClient(JOB, MAIN)


def status(container: str, code: int | None, field: str = "state") -> dict[str, Any]:
    found: dict[str, Any] = {"containerID": f"containerd://{container}", "state": {"running": {}}}
    if code is not None:
        ended = {"exitCode": code, "containerID": f"containerd://{container}"}
        found[field] = {"terminated": ended}
    return found


def pod(*statuses: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"status": {"containerStatuses": list(statuses), **more}}


class Pods:
    """The API server: the Pod of the job, or an error."""

    def __init__(self, body: dict[str, Any] | None) -> None:
        self.body = body
        self.error: KubernetesError | None = None
        self.reads = 0

    async def __call__(self, _: LedgerEntry) -> dict[str, Any] | None:
        self.reads += 1
        if self.error is not None:
            raise self.error
        return self.body


def vanished(*pids: int, at: float = 10.0) -> ClientExits:
    exits = ClientExits()
    exits.update(at - 1, dict.fromkeys(pids, CLIENT))
    exits.update(at, {})
    return exits


class TestContainerEnd:
    @pytest.mark.parametrize(
        ("code", "end"),
        [
            (None, None),
            (0, ClientEnd.CLEAN),
            (1, ClientEnd.FAILED),
            (139, ClientEnd.FAILED),  # SIGSEGV
            (137, ClientEnd.KILLED),  # SIGKILL
            (143, ClientEnd.KILLED),  # SIGTERM
        ],
    )
    def test_the_exit_code_of_its_own_container_counts(
        self, code: int | None, end: ClientEnd | None
    ):
        assert container_end(pod(status(OTHER, 0), status(MAIN, code)), CLIENT) is end

    def test_a_container_that_was_restarted_shows_how_it_ended_before(self):
        assert container_end(pod(status(MAIN, 137, "lastState")), CLIENT) is ClientEnd.KILLED

    def test_init_containers_may_use_the_gpu_too(self):
        body = pod(status(OTHER, None), initContainerStatuses=[status(MAIN, 1)])
        assert container_end(body, CLIENT) is ClientEnd.FAILED

    def test_without_a_known_container_all_of_the_pod_count(self):
        client = JobClient(JOB, "")
        assert container_end(pod(status(MAIN, 0), status(OTHER, None)), client) is ClientEnd.CLEAN
        assert container_end(pod(status(MAIN, 0), status(OTHER, 1)), client) is ClientEnd.FAILED

    def test_a_pod_that_is_gone_was_killed(self):
        assert container_end(None, CLIENT) is ClientEnd.KILLED


class TestDecide:
    async def test_a_kill_is_reported_once_with_its_job(self):
        exits, pods = vanished(7), Pods(pod(status(MAIN, 137)))
        assert exits.undecided
        (end,) = await exits.decide(11.0, pods)
        assert (end.allocation, end.at, end.killed) == (JOB, 10.0, True)
        assert not exits.undecided
        assert await exits.decide(12.0, pods) == []

    async def test_a_client_that_mps_has_terminated_ended_cleanly(self):
        exits, pods = ClientExits(), Pods(pod(status(MAIN, 137)))
        exits.update(1.0, {7: CLIENT})
        exits.terminated(7)
        exits.update(2.0, {})
        assert not exits.undecided
        assert await exits.decide(3.0, pods) == []
        exits.update(4.0, {7: CLIENT})  # another process with its PID
        exits.update(5.0, {})
        assert len(await exits.decide(6.0, pods)) == 1

    async def test_a_termination_may_be_known_after_the_client_has_left(self):
        exits = vanished(7)
        exits.terminated(7)
        assert not exits.undecided

    async def test_a_container_that_runs_on_leaves_it_open_for_a_while(self):
        exits, pods = vanished(7, at=10.0), Pods(pod(status(MAIN, None)))
        assert await exits.decide(10.0 + CONTAINER_ENDS_WITHIN - 0.1, pods) == []
        assert exits.undecided
        (end,) = await exits.decide(10.0 + CONTAINER_ENDS_WITHIN, pods)
        assert not end.killed

    async def test_what_the_api_server_does_not_say_counts_as_unclean(self):
        exits, pods = vanished(7, at=10.0), Pods(None)
        pods.error = KubernetesError("get", 500, "no")
        assert await exits.decide(11.0, pods) == []
        assert exits.undecided
        assert len(await exits.decide(10.0 + CONTAINER_ENDS_WITHIN, pods)) == 1

    async def test_an_api_server_that_does_not_answer_does_not_keep_mps_from_its_check(self):
        exits = vanished(7)
        assert await exits.decide(11.0, lambda _: asyncio.Future()) == []
        assert exits.undecided

    async def test_the_pod_of_several_clients_is_read_once(self):
        exits, pods = vanished(7, 8, 9), Pods(pod(status(MAIN, 1)))
        assert len(await exits.decide(11.0, pods)) == 3
        assert pods.reads == 1

    async def test_without_an_end_nothing_is_read(self):
        exits, pods = ClientExits(), Pods(None)
        exits.update(1.0, {7: CLIENT})
        assert await exits.decide(2.0, pods) == []
        assert pods.reads == 0
