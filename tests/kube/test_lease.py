"""Leadership: one at a time, whoever sleeps, dies or lags."""

import asyncio
import copy
from types import SimpleNamespace
from typing import Any

import pytest

from partita.kube import lease as lease_module
from partita.kube.client import Kind
from partita.kube.errors import (
    AlreadyExistsError,
    ConflictError,
    LeaseLostError,
    NotFoundError,
    UnavailableError,
)
from partita.kube.lease import Lease


class Clock:
    """The machine's clock; sleeping moves it on."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)


class Leases:
    """The API server, of which only one Lease is there."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.body: dict[str, Any] | None = None
        self.version = 0
        self.down = False
        self.mute = False
        """Whether a write takes effect, but is not answered."""
        self.slow = 0.0
        """Seconds that pass before a lease is read."""
        self.late: dict[str, Any] | None = None
        """A renewal that takes effect once the lease is read again."""
        self.namespace_exists = True

    def _ask(self) -> None:
        if self.down:
            raise UnavailableError("request", 0, "down")

    async def get(self, _kind: Kind, _name: str, _namespace: str) -> dict[str, Any]:
        self._ask()
        self.clock.now += self.slow
        if self.body is None:
            raise NotFoundError("get", 404, "no")
        found, late, self.late = copy.deepcopy(self.body), self.late, None
        if late is not None:
            self._put(late)
        return found

    async def create(self, _kind: Kind, body: dict[str, Any]) -> None:
        self._ask()
        if not self.namespace_exists:
            raise NotFoundError("create", 404, "no namespace")
        if self.body is not None:
            raise AlreadyExistsError("create", 409, "there")
        self._put(body)

    async def replace(self, _kind: Kind, body: dict[str, Any]) -> None:
        self._ask()
        if self.body is None or body["metadata"]["resourceVersion"] != str(self.version):
            raise ConflictError("replace", 409, "changed")
        self._put(body)

    def _put(self, body: dict[str, Any]) -> None:
        self.version += 1
        self.body = copy.deepcopy(body)
        self.body["metadata"]["resourceVersion"] = str(self.version)
        if self.mute:
            self.mute = False
            raise UnavailableError("write", 0, "no answer in time")

    @property
    def spec(self) -> dict[str, Any]:
        assert self.body is not None
        return self.body["spec"]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(lease_module, "_clock", made)
    monkeypatch.setattr(
        lease_module, "asyncio", SimpleNamespace(sleep=made.sleep, timeout=asyncio.timeout)
    )
    return made


@pytest.fixture
def leases(clock: Clock) -> Leases:
    return Leases(clock)


def candidate(leases: Leases, identity: str, duration: float = 15.0) -> Lease:
    return Lease(leases, namespace="ns", name="lead", identity=identity, duration=duration)  # type: ignore[arg-type]


async def leading(leases: Leases) -> Lease:
    """One that has the lease."""
    one = candidate(leases, "one")
    await one.acquire()
    return one


async def test_the_first_one_leads_as_soon_as_there_is_the_namespace(leases: Leases, clock: Clock):
    one = candidate(leases, "one", duration=14.3)  # written, it is never shorter than held
    leases.namespace_exists = False
    assert await one._try() == "nobody"
    leases.namespace_exists = True
    assert not one.held()
    await one.acquire()
    assert one.held()
    assert clock.now == 1000.0
    assert leases.spec | {"acquireTime": "", "renewTime": ""} == {
        "holderIdentity": "one",
        "leaseDurationSeconds": 15,
        "leaseTransitions": 0,
        "acquireTime": "",
        "renewTime": "",
    }


async def test_a_second_one_waits_until_the_first_is_silent_for_long_enough(
    leases: Leases, clock: Clock
):
    one, two = await leading(leases), candidate(leases, "two")
    began = clock.now
    await two.acquire()
    assert clock.now >= began + 15
    assert two.held()
    assert not one.held()  # it slept, or was stopped, as by SIGSTOP
    with pytest.raises(LeaseLostError, match="two"):
        await one.keep()
    assert (leases.spec["holderIdentity"], leases.spec["leaseTransitions"]) == ("two", 1)


async def test_one_that_waits_hears_soon_that_it_is_free(leases: Leases, clock: Clock):
    one, two = await leading(leases), candidate(leases, "two")
    waiting = asyncio.create_task(two.acquire())
    while two._record is None:
        await asyncio.sleep(0)
    await one.release()
    released = clock.now
    await waiting
    assert clock.now <= released + 0.5


async def test_one_that_waits_counts_from_the_last_renewal(leases: Leases, clock: Clock):
    one, two = await leading(leases), candidate(leases, "two")
    acquired = leases.spec["acquireTime"]
    waiting = asyncio.create_task(two.acquire())
    while two._record is None:
        await asyncio.sleep(0)
    clock.now += 10
    assert await one._try() is None
    assert (one.held(), leases.spec["acquireTime"]) == (True, acquired)
    renewed = clock.now
    await waiting
    assert renewed + 15 <= clock.now <= renewed + 16


async def test_two_at_the_same_time_never_both_lead(leases: Leases, clock: Clock):
    both = [candidate(leases, "one"), candidate(leases, "two")]
    tasks = [asyncio.create_task(c.acquire()) for c in both]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    assert sum(c.held() for c in both) == 1
    for task in tasks:
        task.cancel()


@pytest.mark.parametrize("free", [None, {"metadata": {}, "spec": {"holderIdentity": ""}}])
async def test_a_leader_that_slept_does_not_take_what_another_may_have_left(
    leases: Leases, clock: Clock, free: dict[str, Any] | None
):
    one = await leading(leases)
    clock.now += 15
    leases.body = free
    with pytest.raises(LeaseLostError, match="nobody"):
        await one.keep()


async def test_without_the_api_server_it_is_lost_in_time(leases: Leases, clock: Clock):
    one = await leading(leases)
    leases.down = True
    began = clock.now
    with pytest.raises(LeaseLostError):
        await one.keep()
    assert clock.now - began <= 18


async def test_a_short_outage_and_a_sleep_alone_are_survived(leases: Leases, clock: Clock):
    one = await leading(leases)
    leases.down = True
    clock.now += 10
    assert await one._try() == "unknown"
    assert one.held()
    leases.down = False
    for slept in (10, 100, 10):
        assert await one._try() is None
        assert one.held()
        clock.now += slept
        assert one.held() is (slept == 10)
    leases.down = True
    await one.release()


async def test_a_lease_that_somebody_took_is_lost_at_once(leases: Leases, clock: Clock):
    one = await leading(leases)
    leases.spec["holderIdentity"] = "somebody"
    with pytest.raises(LeaseLostError, match="somebody"):
        await one.keep()
    assert clock.now == 1003.0


async def test_a_slow_reader_does_not_count_from_before_it_read(leases: Leases, clock: Clock):
    """The record may have been renewed while the request was under way."""
    _, two = await leading(leases), candidate(leases, "two")
    leases.slow = 5.0
    assert await two._try() == "one"  # asked at 0, read at 5
    leases.slow = 0.0
    clock.now += 11  # 16 s after it asked, 11 s after it read
    assert await two._try() == "one"


async def test_a_lease_given_back_is_free_at_once(leases: Leases, clock: Clock):
    one, two = candidate(leases, "one"), candidate(leases, "two")
    assert not await one.acquire(lambda: True)
    assert await one.acquire(lambda: leases.body is not None)  # stopped while it asks
    assert await two._try() == "one"
    leases.late = leases.body
    await one.release()
    assert (one.held(), leases.spec["holderIdentity"]) == (False, "")
    await two.acquire()
    await one.release()
    assert leases.spec["holderIdentity"] == "two"
    await two.release()
    leases.body = None  # and if somebody deletes it then
    await two.acquire()
    assert clock.now == 1000.0
    leases.body, leases.mute = None, True  # and without an answer to who is stopped
    assert not await one.acquire(lambda: leases.body is not None)
    assert leases.spec["holderIdentity"] == ""


async def test_the_same_process_started_again_takes_its_lease_up_at_once(
    leases: Leases, clock: Clock
):
    await candidate(leases, "one").acquire()
    again = candidate(leases, "one")
    await again.acquire()
    assert (clock.now, leases.spec["leaseTransitions"]) == (1000.0, 0)


async def test_a_lease_deleted_by_hand_makes_no_second_leader(leases: Leases, clock: Clock):
    one, two = await leading(leases), candidate(leases, "two")
    assert await two._try() == "one"
    leases.body = None
    assert await two._try() == "one"
    assert await one._try() is None
    assert (one.held(), two.held(), leases.spec["holderIdentity"]) == (True, False, "one")
    began, leases.body = clock.now, None  # who held it is silent
    await two.acquire()
    assert (one.held(), two.held()) == (False, True)
    assert clock.now >= began + 15
