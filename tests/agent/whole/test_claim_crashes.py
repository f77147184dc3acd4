"""The agent is killed at each step of a claim: no slot and no CDI file is lost or left."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from agent.claims import PREPARE, UNPREPARE, Claim, Driver, allocate_claim
from agent.node import Node, ended
from agent.whole.conftest import RESTRICTED, SLOTS, open_slots_are, serve_v3
from partita.agent.dra.cdi import CDIFolder
from partita.agent.mps.slot_limits import SlotLimits


@pytest.fixture(autouse=True)
async def protocol_3(node: Node) -> None:
    await serve_v3(node)


@contextlib.contextmanager
def killed_after(owner: type, step: str) -> Iterator[asyncio.Event]:
    """End the call of kubelet after a step; the event is set then."""
    reached, original = asyncio.Event(), getattr(owner, step)

    def killed(*arguments: Any) -> Any:
        original(*arguments)
        reached.set()
        raise asyncio.CancelledError

    async def killed_later(*arguments: Any) -> Any:
        await original(*arguments)
        reached.set()
        raise asyncio.CancelledError

    with pytest.MonkeyPatch.context() as patch:
        is_async = asyncio.iscoroutinefunction(original)
        patch.setattr(owner, step, killed_later if is_async else killed)
        yield reached


async def ask_and_kill(node: Node, driver: Driver, method: str, claim: Claim, *step: Any) -> None:
    """Kill the agent after a step of a call of kubelet, and start it again."""
    with killed_after(*step) as reached:
        asking = asyncio.create_task(driver.ask(node.name, method, claim))
        await reached.wait()
        await node.kill_agent()
        asking.cancel()
    node.start_agent()
    await node.is_ready()


def slot_of(claim: Claim) -> int:
    (mount,) = claim.edits["mounts"]
    return int(mount["hostPath"].rpartition("_")[2])


async def check_that_all_slots_work(node: Node, driver: Driver, *prepared: Claim) -> None:
    """Give every slot to a claim, and end all of them."""
    claims = list(prepared)
    for number in range(SLOTS - len(claims)):
        claim = await allocate_claim(node, f"next-{number}", container=RESTRICTED)
        assert (await driver.prepare(node.name, claim)).error == ""
        claims.append(claim)
    assert {slot_of(claim) for claim in claims} == set(range(SLOTS))
    for claim in claims:
        assert (await ended(claim.run("alloc:900")))[0] == 0
        assert await driver.unprepare(node.name, claim) == ""
    assert not list(node.cdi.iterdir())
    await open_slots_are(node)


@pytest.mark.parametrize("step", [(SlotLimits, "open"), (CDIFolder, "write")])
async def test_killed_while_it_prepares(node: Node, driver: Driver, step: tuple[type, str]):
    claim = await allocate_claim(node, "serve", container=RESTRICTED)
    await ask_and_kill(node, driver, PREPARE, claim, *step)
    assert (await driver.prepare(node.name, claim)).error == ""
    await check_that_all_slots_work(node, driver, claim)


async def test_killed_while_it_prepares_a_pod_that_is_then_deleted(node: Node, driver: Driver):
    claim = await allocate_claim(node, "serve", container=RESTRICTED)
    await ask_and_kill(node, driver, PREPARE, claim, CDIFolder, "write")
    (node.cdi / f".{claim.file.name}.4711").write_text("{")  # it was killed while it wrote
    assert claim.file.exists()
    assert await driver.unprepare(node.name, claim) == ""
    await check_that_all_slots_work(node, driver)


async def test_killed_while_it_unprepares(node: Node, driver: Driver):
    claim = await allocate_claim(node, "serve", container=RESTRICTED)
    assert (await driver.prepare(node.name, claim)).error == ""
    await ask_and_kill(node, driver, UNPREPARE, claim, CDIFolder, "remove")
    assert not claim.file.exists()
    assert await driver.unprepare(node.name, claim) == ""
    await claim.release()
    await check_that_all_slots_work(node, driver)
