"""What processes have used: processor time and memory, as Linux counts them."""

import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Usage", "requests_served", "usage"]

_TICK: int = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process has used."""

    cpu: float
    """Seconds of processor time, user and system."""
    peak: float
    """Most resident memory so far, MB."""

    def since(self, before: "Usage") -> "Usage":
        """Return what was used since then; the peak stays that of its whole life."""
        return Usage(self.cpu - before.cpu, self.peak)


def usage(pid: int) -> Usage:
    """Read what a process of this machine has used so far, its ended children left out."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    return Usage((int(fields[11]) + int(fields[12])) / _TICK, peak * 1024 / 1e6)


def requests_served(metrics: str) -> dict[tuple[str, str], int]:
    """Read from an API server's `/metrics` how many requests it served, by verb and resource.

    Dry runs and errors count as well: whoever repeats a request has the API server do it twice.
    """
    served: dict[tuple[str, str], int] = {}
    for line in metrics.splitlines():
        if not line.startswith("apiserver_request_total{"):
            continue
        labels, _, value = line.removeprefix("apiserver_request_total{").rpartition("} ")
        read = dict(pair.split("=", 1) for pair in labels.split(","))
        key = read["verb"].strip('"'), read["resource"].strip('"')
        served[key] = served.get(key, 0) + round(float(value))
    return served
