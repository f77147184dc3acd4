"""Measures what a program uses, by the agent's own reading of NVML and its own arithmetic."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from partita.agent.usage.job_usage import (
    SAMPLE_INTERVAL,
    GPUSample,
    TracePoint,
    UsageTrace,
    attribute,
)

if TYPE_CHECKING:
    from partita.agent.gpu.nvml import NVMLDevice

__all__ = ["Sampler"]

_JOB = "job"


@dataclass(slots=True)
class Sampler:
    """Samples one program's use of a GPU; call it as often as you like.

    Parameters
    ----------
    pid
        The program's.
    """

    gpu: NVMLDevice
    pid: int
    trace: UsageTrace = field(default_factory=UsageTrace)
    begin: float = field(default_factory=time.time)
    seen: bool = False
    """Whether NVML ever named the program; otherwise the figures are the whole GPU's."""
    _next: float = 0.0

    def __call__(self) -> None:
        """Take a sample when one is due; rest a little when none is."""
        now = time.time()
        if now < self._next:
            time.sleep(min(0.01, self._next - now))
            return
        self._next = now + SAMPLE_INTERVAL
        memory = {pid: used or 0 for pid, used in self.gpu.processes().items()}
        used = self.gpu.memory_used()
        self.seen |= self.pid in memory
        if self.pid not in memory:
            # In a container the driver may name PIDs of the machine beneath.
            memory = {self.pid: used}
        reading = GPUSample(
            at=now,
            memory={self.pid: memory[self.pid]},
            used=used,
            utilization=self.gpu.utilization()[0],
            occupancy=self.gpu.sm_occupancy(),
            pcie=self.gpu.pcie_throughput(),
        )
        self.trace.add(now, attribute(reading, {self.pid: _JOB})[_JOB])

    def rest(self, seconds: float) -> None:
        """Sample for a while."""
        end = time.time() + seconds
        while time.time() < end:
            self()

    def steps(self) -> list[TracePoint]:
        """Return the profile so far."""
        return self.trace.steps(self.begin, time.time())
