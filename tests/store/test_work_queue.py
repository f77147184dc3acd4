"""A work queue: each key once, in time, and not while it is processed."""

import asyncio
from datetime import timedelta

import pytest

from partita.store.work_queue import WorkQueue, wait_for_keys
from support.builders import START


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self):
        return START + timedelta(seconds=self.seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(clock: Clock) -> WorkQueue[str]:
    return WorkQueue(clock)


def test_a_key_is_taken_when_it_is_due_first_and_once(queue, clock):
    queue.add("a", "b")
    queue.add("a")
    assert queue.take() == {"a", "b"}
    for seconds in (9, 3, 6):
        queue.add_after("a", seconds)
    assert (queue.take(), queue.due_in()) == (set(), 3)
    clock.seconds = 3
    assert queue.take() == {"a"}
    clock.seconds = 10
    assert queue.take() == set()


def test_a_key_that_is_being_processed_is_taken_once_it_is_done(queue, clock):
    queue.add_after("a", 1)
    queue.start("a")
    queue.add("a")
    clock.seconds = 1
    assert queue.take() == set()
    queue.done("a")
    assert queue.take() == {"a"}


async def test_a_key_may_be_withheld_for_a_while_after_it_is_done(queue):
    queue.start("a")
    queue.done("a", after=0.01)
    assert queue.processing == {"a"}
    assert await queue.get() == {"a"}
    assert not queue.processing


def test_after_the_clock_was_set_back_all_delayed_keys_are_due(queue, clock):
    clock.seconds = 3600
    queue.add_after("a", 5)
    queue.take()
    clock.seconds = 0
    assert queue.due_in() == 0
    assert queue.take() == {"a"}


async def test_one_consumer_waits_for_any_of_its_queues(clock):
    ready = asyncio.Event()
    jobs, partitions = WorkQueue[str](clock, ready), WorkQueue[str](clock, ready)
    waiting = asyncio.create_task(wait_for_keys(jobs, partitions))
    await asyncio.sleep(0)
    assert not waiting.done()
    partitions.add("shared")
    await waiting
    assert (jobs.take(), partitions.take()) == (set(), {"shared"})
