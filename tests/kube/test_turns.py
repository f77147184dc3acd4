"""What waits for an answer is not behind all long work at each step of the event loop."""

import asyncio

from partita.kube.turns import Turns
from support.meanwhile import running


async def test_of_all_long_work_one_step_is_taken_at_a_time_in_turns() -> None:
    turns, taken = Turns(), list[str]()

    async def work(name: str) -> None:
        while True:
            await turns.next()
            taken.append(name)

    async with running(work("a")), running(work("b")), running(work("c")):
        for _ in range(60):
            await asyncio.sleep(0)
    assert 15 <= len(taken) <= 60
    assert taken[:6] == [*"abc"] * 2
