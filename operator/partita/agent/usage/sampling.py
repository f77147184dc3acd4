"""Samples the GPU several times a second, in a thread of its own."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from typing_extensions import override

from partita.agent.errors import NVMLError
from partita.agent.gpu.nvml import NVMLDevice
from partita.agent.gpu.nvml_threads import NVMLThread
from partita.agent.times import AgentTimes
from partita.agent.usage.job_usage import SAMPLE_INTERVAL, GPUSample

__all__ = ["SamplingThread"]

_SHARES_EVERY: Final = 0.5
"""Seconds between two reads of each process's share of the SMs. The driver samples these shares
a few times a second."""
_ROUNDING: Final = 1e-3
"""Seconds by which a time may be too low: floating-point sums are not exact."""


class SamplingThread(NVMLThread):
    """Samples a GPU until it is stopped.

    Parameters
    ----------
    gpu
        The GPU.
    take
        Called in the event loop with samples, or with the error that prevents them.
    times
        How long it waits.
    """

    def __init__(
        self,
        gpu: NVMLDevice,
        take: Callable[[list[GPUSample] | NVMLError], None],
        times: AgentTimes,
    ) -> None:
        super().__init__("sampling")
        self._gpu = gpu
        self._take = take
        self._times = times
        self._stamp = time.time_ns() // 1000
        self._slow = GPUSample(at=0.0, memory={})
        self._shares: Mapping[int, int] | None = None

    @override
    def run(self) -> None:
        batch: list[GPUSample] = []
        due = shares_due = slow_due = time.monotonic()
        while not self._stopped.is_set():
            try:
                if due >= shares_due:
                    self._read_shares()
                    shares_due = due + _SHARES_EVERY - _ROUNDING
                memory = {pid: used or 0 for pid, used in self._gpu.processes().items()}
                if due >= slow_due:
                    self._read_slow(memory)
                    slow_due = due + self._times.slow_every - _ROUNDING
                batch.append(self._sample(memory))
            except NVMLError as error:
                self._pass(self._take, error)
                if self._stopped.wait(self._times.sample_retry):
                    return
                due = time.monotonic()
                continue
            if len(batch) * SAMPLE_INTERVAL >= self._times.batch_every - _ROUNDING:
                self._pass(self._take, batch)
                batch = []
            due += SAMPLE_INTERVAL
            # After a slow call the interval stays the same; missed samples are not repeated.
            due = max(due, time.monotonic() - SAMPLE_INTERVAL)
            self._stopped.wait(max(0.0, due - time.monotonic()))

    def _sample(self, memory: Mapping[int, int]) -> GPUSample:
        utilization, bandwidth = self._gpu.utilization()
        return replace(
            self._slow,
            at=time.time(),
            memory=memory,
            utilization=utilization,
            shares=self._shares,
            bandwidth=bandwidth,
        )

    def _read_shares(self) -> None:
        found = self._gpu.process_utilization(self._stamp)
        if found is None:
            self._shares = None
        else:
            self._shares, self._stamp = found

    def _read_slow(self, memory: Mapping[int, int]) -> None:
        used = self._gpu.memory_used()
        self._slow = GPUSample(
            at=0.0,
            memory={},
            used=used,
            unattributed=used - sum(memory.values()),
            occupancy=self._gpu.sm_occupancy(),
            pcie=self._gpu.pcie_throughput(),
        )
