"""Samples the GPU in a thread of its own."""

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

_ROUNDING: Final = 1e-3
"""Seconds by which a time may be too low: floating-point sums are not exact."""


class SamplingThread(NVMLThread):
    """Samples a GPU until it is stopped.

    Each sample lists the processes and their memory. What they compute is read once a batch: the
    driver itself averages it over 1/6 s to 1 s (`nvmlDeviceGetUtilizationRates`,
    https://docs.nvidia.com/deploy/nvml-api/). Of samples that show the same, only the first and the
    last one are passed on, and the last one of a batch.

    Parameters
    ----------
    gpu
        The GPU.
    take
        Called in the event loop with samples, or with the error that prevents them.
    often
        Returns whether peaks of the memory depend on the samples: then it takes ten a second, and
        otherwise one for each batch.
    times
        How long it waits.
    """

    def __init__(
        self,
        gpu: NVMLDevice,
        take: Callable[[list[GPUSample] | NVMLError], None],
        often: Callable[[], bool],
        times: AgentTimes,
    ) -> None:
        super().__init__("sampling")
        self._gpu = gpu
        self._take = take
        self._often = often
        self._times = times
        self._stamp = time.time_ns() // 1000
        self._slow_due = 0.0

    @override
    def run(self) -> None:
        batch: list[GPUSample] = []
        last: GPUSample | None = None
        left_out = False
        due = ends = time.monotonic()
        while not self._stopped.is_set():
            try:
                before = last
                memory = {pid: used or 0 for pid, used in self._gpu.processes().items()}
                if before is None or due >= ends:
                    last = self._read(memory, before, due)
                else:
                    last = replace(before, at=time.time(), memory=memory)
                changed = before is None or memory != before.memory
                if before is not None and changed and left_out:
                    batch.append(before)  # it lasted until now
                left_out = not changed and due < ends
                if not left_out:
                    batch.append(last)
            except NVMLError as error:
                self._pass(self._take, error)
                if self._stopped.wait(self._times.sample_retry):
                    return
                due = time.monotonic()
                continue
            if due >= ends:
                self._pass(self._take, batch)
                batch, ends = [], due + self._times.batch_every - _ROUNDING
            interval = SAMPLE_INTERVAL if self._often() else self._times.batch_every
            # After a slow call the interval stays the same; missed samples are not repeated.
            due = max(due + interval, time.monotonic() - interval)
            time.sleep(max(0.0, due - time.monotonic()))  # half the cost of waiting for an event

    def _read(self, memory: Mapping[int, int], last: GPUSample | None, due: float) -> GPUSample:
        """Read all metrics; those that are slow to read only if they are due."""
        utilization, bandwidth = self._gpu.utilization()
        shares = self._gpu.process_utilization(self._stamp)
        if shares is not None:
            self._stamp = shares[1]
        slow = last
        if slow is None or due >= self._slow_due:
            self._slow_due = due + self._times.slow_every - _ROUNDING
            used = self._gpu.memory_used()
            slow = GPUSample(
                at=0.0,
                memory={},
                used=used,
                unattributed=used - sum(memory.values()),
                occupancy=self._gpu.sm_occupancy(),
                pcie=self._gpu.pcie_throughput(),
            )
        return replace(
            slow,
            at=time.time(),
            memory=memory,
            utilization=utilization,
            shares=None if shares is None else shares[0],
            bandwidth=bandwidth,
        )
