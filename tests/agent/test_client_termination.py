"""When the clients of a Pod that is being ended are terminated."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest

from agent.entries import job_entry
from partita.agent.allocations import AllocationReader
from partita.agent.attribution.processes import PodsOfProcesses
from partita.agent.mps.client_termination import ClientTermination, ReleaseTimes
from partita.agent.mps.control import MPSControl
from partita.agent.times import AgentTimes
from partita.kube.client import Kube
from partita.pods.termination import TERMINATE_BEFORE_KILL
from support.polling import until

POD = "0b0e3f6e-0000-4000-8000-000000000001"

SINCE = datetime(2026, 1, 2, tzinfo=UTC)
GRACE = 37.0


def due(*calls: tuple[float, float], grace: float = GRACE) -> float:
    """Return the time after calls at a monotonic and a node's time, both since the mark."""
    deadline = SINCE + timedelta(seconds=grace)
    allocation = job_entry(pod_uid=POD, releasing_since=SINCE, release_deadline=deadline)
    times, found = ReleaseTimes(), {}
    for now, clock in calls:
        found = times.update({allocation.key: allocation}, now, SINCE + timedelta(seconds=clock))
    return found[allocation.key] + TERMINATE_BEFORE_KILL


def test_the_last_clients_go_shortly_before_the_pod_is_killed():
    assert due((100.0, 0.0)) == 137.0


@pytest.mark.parametrize("seconds", [1.0, 20.0])
def test_of_two_clocks_the_one_that_leaves_less_time_counts(seconds: float):
    assert due((100.0, -seconds)) == 137.0  # the node's clock is behind
    assert due((100.0, seconds)) == 137.0 - seconds  # it is ahead, or the mark came late
    assert due((100.0, -seconds), (110.0, 10.0 - seconds)) == 137.0


def test_an_agent_that_starts_meanwhile_knows_the_time_from_the_ledger():
    assert due((5.0, 30.0)) == 12.0


def test_what_is_not_being_released_has_no_such_time():
    allocation = job_entry(pod_uid=POD)
    assert ReleaseTimes().update({allocation.key: allocation}, 0.0, SINCE) == {}


class Control:
    """A daemon with one client, and what it answers to its termination."""

    def __init__(self, ledger: AllocationReader, *answers: str, released: bool = False) -> None:
        self.ledger = ledger
        self.answers = [*answers]
        self.released = released
        """Whether the allocation leaves the ledger while the clients are listed."""

    async def servers(self) -> list[int]:
        return [1]

    async def clients(self, _server: int) -> list[int]:
        if self.released:
            self.ledger.allocations = {}
        return [7]

    async def terminate(self, _server: int, _client: int) -> str:
        return self.answers.pop(0)


@pytest.mark.parametrize(("answers", "released"), [(("no answer", ""), False), (("",), True)])
async def test_a_client_is_terminated_once(
    tmp_path: Path, answers: tuple[str, ...], *, released: bool
):
    """What MPS did not carry out is tried again; the ledger may change while it answers."""
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text(f"0::/kubepods/pod{POD}/main\n")
    ledger = AllocationReader(cast("Kube", None), "gpus-0")
    now = datetime.now(UTC)
    times = {"releasing_since": now, "release_deadline": now + timedelta(hours=1)}
    allocation = job_entry(pod_uid=POD, **times)
    ledger.allocations = {allocation.key: allocation}
    control = Control(ledger, *answers, "not asked", released=released)
    terminated: list[int] = []
    termination = ClientTermination(
        control=lambda _deadline: cast("MPSControl", control),
        ledger=ledger,
        processes=PodsOfProcesses(tmp_path),
        terminated=terminated.append,
        wedged=terminated.append,  # type: ignore[arg-type]
        times=AgentTimes(),
    )
    task = asyncio.create_task(termination.run())
    await until(lambda: terminated or task.done())
    ledger.changed.set()  # it looks again
    await until(lambda: not ledger.changed.is_set() or task.done())
    task.cancel()
    assert (terminated, control.answers) == ([7], ["not asked"])
