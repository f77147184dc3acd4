"""Samples the GPU ten times a second, in a thread of its own."""

import time
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from typing_extensions import override

from partita.agent.errors import NVMLError
from partita.agent.nvml import NVMLDevice
from partita.agent.nvml_threads import NVMLThread
from partita.agent.usage import SAMPLE_INTERVAL, GPUSample

__all__ = ["BATCH", "SamplingThread"]

BATCH: Final = 5
"""Samples passed to the event loop at a time: half a second of samples."""
_SHARES_EVERY: Final = 5
"""Samples between two reads of each process's share of the SMs. The driver samples these shares
a few times a second."""
_SLOW_EVERY: Final = 10
"""Samples between two reads of metrics that are slow to read or change slowly (PCIe alone takes
40 ms)."""
_AFTER_ERROR: Final = 1.0


Samples: TypeAlias = list[GPUSample] | NVMLError


class SamplingThread(NVMLThread):
    """Samples a GPU until it is stopped.

    Parameters
    ----------
    gpu
        The GPU.
    take
        Called in the event loop with samples, or with the error that prevents them.
    """

    def __init__(
        self, gpu: NVMLDevice, take: Callable[[list[GPUSample] | NVMLError], None]
    ) -> None:
        super().__init__("sampling")
        self._gpu = gpu
        self._take = take
        self._stamp = time.time_ns() // 1000
        self._slow = GPUSample(at=0.0, memory={})
        self._shares: Mapping[int, int] | None = None

    @override
    def run(self) -> None:
        batch: list[GPUSample] = []
        count, due = 0, time.monotonic()
        while not self._stopped.is_set():
            try:
                if count % _SHARES_EVERY == 0:
                    self._read_shares()
                if count % _SLOW_EVERY == 0:
                    self._read_slow()
                batch.append(self._sample())
            except NVMLError as error:
                self._pass(self._take, error)
                if self._stopped.wait(_AFTER_ERROR):
                    return
                due = time.monotonic()
                continue
            count += 1
            if len(batch) == BATCH:
                self._pass(self._take, batch)
                batch = []
            due += SAMPLE_INTERVAL
            # After a slow call the interval stays the same; missed samples are not repeated.
            due = max(due, time.monotonic() - SAMPLE_INTERVAL)
            self._stopped.wait(max(0.0, due - time.monotonic()))

    def _sample(self) -> GPUSample:
        slow = self._slow
        return GPUSample(
            at=time.time(),
            memory={p.pid: p.memory or 0 for p in self._gpu.processes()},
            used=slow.used,
            utilization=self._gpu.utilization(),
            shares=self._shares,
            occupancy=slow.occupancy,
            pcie=slow.pcie,
        )

    def _read_shares(self) -> None:
        found = self._gpu.process_utilization(self._stamp)
        if found is None:
            self._shares = None
        else:
            self._shares, self._stamp = found

    def _read_slow(self) -> None:
        self._slow = GPUSample(
            at=0.0,
            memory={},
            used=self._gpu.memory_used(),
            occupancy=self._gpu.sm_occupancy(),
            pcie=self._gpu.pcie_throughput(),
        )
