"""Termination of processes that violate a limit, and the Events about it."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from agent.entries import job_entry
from partita.agent.limits.violations import LimitEnforcer, Violation
from partita.agent.times import AgentTimes
from partita.kube.events import Events, EventSubject
from partita.models import GPUServer
from partita.models.base import Resource
from support.polling import TIMEOUT, until

TRAIN = job_entry(attempt=2)
SERVER = GPUServer.parse({"metadata": {"name": "gpus-0"}, "spec": {"partition": "gpus"}})


class Recorder:
    """Records terminated processes and Events; termination fails with `error`."""

    def __init__(self, *, again: bool = False) -> None:
        self.terminated: list[int] = []
        self.events: list[tuple[str, str, str]] = []
        self.error = ""
        self.enforcer = LimitEnforcer(
            cast("Events", self),
            self.terminate,
            AgentTimes(terminate_again=0.0 if again else 3600.0),
        )

    async def terminate(self, pid: int) -> str:
        self.terminated.append(pid)
        return self.error

    def warn(self, about: Resource | EventSubject, reason: str, message: str) -> None:
        subject = about if isinstance(about, EventSubject) else EventSubject.of(about)
        self.events.append((subject.name, reason, message))


@pytest.fixture
async def recorder() -> Any:
    made = Recorder()
    yield made
    await made.enforcer.close()


def excess(pid: int, clients: int = 3) -> Violation:
    used = f"attempt 2 used {clients} MPS clients with 1 allocated"
    return Violation(
        pid, TRAIN.subject, "AboveProcesses", used, "raise spec.processes", TRAIN.key, clients
    )


async def test_a_violation_terminates_one_process_once_and_names_the_field(recorder: Recorder):
    for _ in range(3):
        recorder.enforcer.enforce(excess(7))
    await until(lambda: recorder.events)
    assert recorder.terminated == [7]
    assert recorder.events == [
        (
            "train",
            "AboveProcesses",
            f"{excess(7).used}; process 7 was terminated; raise spec.processes",
        )
    ]


async def test_a_process_that_lives_on_is_terminated_again_later():
    recorder = Recorder(again=True)

    def repeated() -> bool:
        recorder.enforcer.enforce(excess(7))
        return recorder.terminated == [7, 7]

    await until(repeated)
    await recorder.enforcer.close()


async def test_an_alarm_is_one_event_of_an_attempt_and_terminates_nothing(recorder: Recorder):
    for used in ("3Gi", "4Gi"):
        alarm = Violation(
            7, TRAIN.subject, "AboveAllocation", used, "raise spec.gpuMemory", TRAIN.key,
            terminate=False,
        )  # fmt: skip
        recorder.enforcer.enforce(alarm)
    ((job, reason, message),) = recorder.events
    assert (job, reason) == ("train", "AboveAllocation")
    assert "nothing was terminated" in message
    assert recorder.terminated == []
    recorder.enforcer.forget(TRAIN.key)
    recorder.enforcer.enforce(alarm)
    assert len(recorder.events) == 2


async def test_a_failure_to_terminate_is_reported_and_counts_no_excess_clients(recorder: Recorder):
    recorder.error = "no MPS server runs"
    recorder.enforcer.enforce(excess(7))
    await until(lambda: recorder.events)
    assert "process 7 could not be terminated: no MPS server runs" in recorder.events[0][2]
    assert recorder.enforcer.excess_clients(TRAIN.key) == 0


async def test_the_most_excess_clients_of_an_attempt_are_kept_until_it_ends(recorder: Recorder):
    for pid, clients in ((7, 3), (8, 5), (9, 2)):
        recorder.enforcer.enforce(excess(pid, clients))
        await until(lambda pid=pid: any(f"process {pid} " in e[2] for e in recorder.events))
    assert recorder.enforcer.excess_clients(TRAIN.key) == 5
    recorder.enforcer.forget(TRAIN.key)
    assert recorder.enforcer.excess_clients(TRAIN.key) == 0


async def test_closing_cancels_what_waits(recorder: Recorder):
    recorder.enforcer.enforce(excess(7))
    await until(lambda: recorder.events)
    await asyncio.wait_for(recorder.enforcer.close(), TIMEOUT)
    recorder.enforcer.enforce(excess(7))
    await until(lambda: recorder.terminated == [7, 7])
