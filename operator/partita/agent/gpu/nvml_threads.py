"""Runs NVML's blocking calls in threads.

A call may never return if its GPU is about to be lost. Each call gets its own thread, which is
abandoned if the call does not return. pynvml releases Python's global interpreter lock during a
call, so other threads continue to run.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing
from typing import TypeVar, TypeVarTuple

from typing_extensions import override

from partita.agent.errors import NVMLError, NVMLHangsError
from partita.agent.gpu.nvml import NVMLDevice
from partita.agent.times import AgentTimes

__all__ = ["EventThread", "NVMLThread", "in_thread"]

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")


async def in_thread(
    function: Callable[[*Arguments], T],
    *arguments: *Arguments,
    deadline: float = AgentTimes.driver_answers_within,
) -> T:
    """Call a function that may block for ever; its thread does not prevent the process's exit.

    Raises
    ------
    NVMLHangsError
        The call takes longer than the deadline.
    """
    answer: Future[T] = Future()
    answer.set_running_or_notify_cancel()  # a caller that gives up does not end the call

    def work() -> None:
        try:
            answer.set_result(function(*arguments))
        except BaseException as error:  # noqa: BLE001 - raised again in the event loop
            answer.set_exception(error)

    threading.Thread(target=work, name="nvml", daemon=True).start()
    try:
        async with asyncio.timeout(deadline):
            return await asyncio.wrap_future(answer)
    except TimeoutError:
        raise NVMLHangsError(f"the driver did not answer for {deadline:g} s") from None


class NVMLThread(threading.Thread):
    """A thread that passes its results to an event loop."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._loop = asyncio.get_running_loop()
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Request the end of the thread, without waiting for it."""
        self._stopped.set()

    def _pass(self, function: Callable[..., None], *arguments: object) -> None:
        if not self._stopped.is_set() and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *arguments)


class EventThread(NVMLThread):
    """Waits for events of the driver.

    Parameters
    ----------
    gpu
        The GPU.
    take
        Called in the event loop with the Xid of each event, which is 0 for an event of another
        kind, or with the error that ends the thread.
    times
        How long it waits.
    """

    def __init__(
        self, gpu: NVMLDevice, take: Callable[[int | NVMLError], None], times: AgentTimes
    ) -> None:
        super().__init__("events")
        self._gpu = gpu
        self._take = take
        self._times = times

    @override
    def run(self) -> None:
        try:
            with closing(self._gpu.events(round(1000 * self._times.event_wait))) as events:
                for xid in events:
                    if self._stopped.is_set():
                        return
                    if xid is not None:
                        self._pass(self._take, xid)
        except NVMLError as error:
            self._pass(self._take, error)
