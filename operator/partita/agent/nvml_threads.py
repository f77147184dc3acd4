"""What must not block the agent: looking at the GPU, and waiting for its events.

NVML's calls block, a GPU that is about to be lost may keep one for ever, and the library releases
Python's lock while it waits. So each has a thread of its own, which is left behind when it does
not come back, and hands over what it saw.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, ParamSpec, TypeAlias, TypeVar

from typing_extensions import override

from partita.agent.errors import NVMLError
from partita.agent.nvml import GPUEvent, NVMLDevice
from partita.agent.sampling import SAMPLE_INTERVAL, GPUReading

__all__ = ["BATCH", "WITHIN", "EventThread", "Readings", "SamplingThread", "in_thread"]

P = ParamSpec("P")
T = TypeVar("T")

WITHIN: Final = 20.0
"""Seconds for a call of NVML. The first on a node without the persistence daemon loads the
driver, which takes several."""
BATCH: Final = 5
"""Samples handed over at a time: half a second's."""
_SHARES_EVERY: Final = 5
"""Samples between two looks at each process's share of the SMs, which the driver itself samples
a few times a second."""
_SLOW_EVERY: Final = 10
"""Samples between two looks at what takes long or changes slowly (PCIe alone takes 40 ms)."""
_AFTER_ERROR: Final = 1.0
_EVENT_WAIT: Final = 500
"""Milliseconds in which a thread that waits for events looks whether it is to end."""

Readings: TypeAlias = list[GPUReading] | NVMLError


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call what may block for ever; a thread that does not come back holds up nobody's end.

    Raises
    ------
    NVMLError
        If it takes longer than `WITHIN`.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
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
        except BaseException as raised:  # noqa: BLE001 - raised again where it is waited for
            error = raised
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=work, name="nvml", daemon=True).start()
    try:
        async with asyncio.timeout(WITHIN):
            return await answer
    except TimeoutError:
        raise NVMLError(f"the driver did not answer for {WITHIN:g} s") from None


class _Thread(threading.Thread):
    """A thread that hands things to an event loop."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._loop = asyncio.get_running_loop()
        self._over = threading.Event()

    def end(self) -> None:
        """Let it end; it is not waited for."""
        self._over.set()

    def _hand_over(self, function: Callable[..., None], *arguments: object) -> None:
        if not self._over.is_set() and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *arguments)


class SamplingThread(_Thread):
    """Looks at a GPU ten times a second.

    Parameters
    ----------
    gpu
        The GPU.
    take
        Called in the event loop with what was seen, or with why nothing was.
    """

    def __init__(self, gpu: NVMLDevice, take: Callable[[Readings], None]) -> None:
        super().__init__("sampling")
        self._gpu = gpu
        self._take = take
        self._stamp = time.time_ns() // 1000
        self._slow = GPUReading(at=0.0, memory={})
        self._shares: Mapping[int, int] | None = None

    @override
    def run(self) -> None:
        batch: list[GPUReading] = []
        count, due = 0, time.monotonic()
        while not self._over.is_set():
            try:
                if count % _SHARES_EVERY == 0:
                    self._look_at_shares()
                if count % _SLOW_EVERY == 0:
                    self._look_closely()
                batch.append(self._look())
            except NVMLError as error:
                self._hand_over(self._take, error)
                if self._over.wait(_AFTER_ERROR):
                    return
                due = time.monotonic()
                continue
            count += 1
            if len(batch) == BATCH:
                self._hand_over(self._take, batch)
                batch = []
            due += SAMPLE_INTERVAL
            # After a slow call the pace is kept, but what was missed is not made up for.
            due = max(due, time.monotonic() - SAMPLE_INTERVAL)
            self._over.wait(max(0.0, due - time.monotonic()))

    def _look(self) -> GPUReading:
        slow = self._slow
        return GPUReading(
            at=time.time(),
            memory={p.pid: p.memory or 0 for p in self._gpu.processes()},
            used=slow.used,
            utilization=self._gpu.utilization(),
            shares=self._shares,
            occupancy=slow.occupancy,
            pcie=slow.pcie,
        )

    def _look_at_shares(self) -> None:
        found = self._gpu.process_utilization(self._stamp)
        if found is None:
            self._shares = None
        else:
            self._shares, self._stamp = found

    def _look_closely(self) -> None:
        self._slow = GPUReading(
            at=0.0,
            memory={},
            used=self._gpu.memory_used(),
            occupancy=self._gpu.sm_occupancy(),
            pcie=self._gpu.pcie_throughput(),
        )


class EventThread(_Thread):
    """Waits for what the driver tells of by itself.

    Parameters
    ----------
    gpu
        The GPU.
    take
        Called in the event loop with an event, or with why there will be no more.
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
            self._hand_over(self._take, error)
            return
        try:
            while events.supported and not self._over.is_set():
                event = events.wait(_EVENT_WAIT)
                if event is not None:
                    self._hand_over(self._take, event)
        except NVMLError as error:
            self._hand_over(self._take, error)
        finally:
            events.close()
