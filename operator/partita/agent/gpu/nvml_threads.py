"""Runs NVML's blocking calls in threads.

A call may never return if its GPU is about to be lost. Each call gets its own thread, which is
abandoned if the call does not return. pynvml releases Python's global interpreter lock during a
call, so other threads continue to run.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, ParamSpec, TypeVar

from typing_extensions import override

from partita.agent.errors import NVMLError
from partita.agent.gpu.nvml import GPUEvent, NVMLDevice

__all__ = ["DEADLINE", "EventThread", "NVMLThread", "in_thread"]

P = ParamSpec("P")
T = TypeVar("T")

DEADLINE: Final = 20.0
"""Seconds for a call of NVML. The first call on a node without the persistence daemon loads the
driver, which takes several seconds."""
_EVENT_WAIT: Final = 500
"""Milliseconds after which a thread that waits for events checks whether it is stopped."""


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function that may block for ever; its thread does not prevent the process's exit.

    Raises
    ------
    NVMLError
        The call takes longer than `DEADLINE`.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def set_result(result: T | None, error: BaseException | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)  # type: ignore[arg-type]

    def work() -> None:
        result: T | None = None
        error: BaseException | None = None
        try:
            result = function(*args, **kwargs)
        except BaseException as raised:  # noqa: BLE001 - raised again in the event loop
            error = raised
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(set_result, result, error)

    threading.Thread(target=work, name="nvml", daemon=True).start()
    try:
        async with asyncio.timeout(DEADLINE):
            return await answer
    except TimeoutError:
        raise NVMLError(f"the driver did not answer for {DEADLINE:g} s") from None


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
        Called in the event loop with each event, or with the error that ends the thread.
    """

    def __init__(self, gpu: NVMLDevice, take: Callable[[GPUEvent | NVMLError], None]) -> None:
        super().__init__("events")
        self._gpu = gpu
        self._take = take

    @override
    def run(self) -> None:
        try:
            events = self._gpu.events()
        except NVMLError as error:
            self._pass(self._take, error)
            return
        try:
            while events.supported and not self._stopped.is_set():
                event = events.wait(_EVENT_WAIT)
                if event is not None:
                    self._pass(self._take, event)
        except NVMLError as error:
            self._pass(self._take, error)
        finally:
            events.close()
