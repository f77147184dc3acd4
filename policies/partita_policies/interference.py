"""How much jobs that share a GPU slow each other down, and whose memory is refused.

There is one model: the simulator and the simulated nodes run jobs by it, and policies predict with
it. A policy knows only what a profile says; the simulator also knows how sensitive to the cache an
application really is.

Each job asks for a part of each resource while it runs alone: of the SMs, of the PCIe link, of the
memory, and of the cache. Where the parts of one resource add up to more than the whole, the jobs
share it fairly (`stretches`). Jobs whose kernels run at the same time also evict each other's
cache lines (`CACHE_STRENGTH`), which taking turns avoids at the price of a switch
(`SWITCH_OVERHEAD`).
"""

from collections.abc import Sequence
from typing import NamedTuple

from partita_policies.types import GPU, Sharing, Step

__all__ = [
    "CACHE_EXPONENT",
    "CACHE_STRENGTH",
    "SM_SATURATION",
    "SWITCH_OVERHEAD",
    "TYPICAL_CACHE",
    "Load",
    "load_of",
    "memory_refused",
    "slowdowns",
    "stretches",
    "utilization",
]

SWITCH_OVERHEAD = 1.071
"""Time that a GPU which time-slices takes for work that takes 1 alone. Fitted to Table 1 of
"Analyzing GPU Performance on Containers" (Son, Kim, Han); see
`tests/bench/policies/calibration.py`."""
CACHE_STRENGTH = 0.579
"""Slowdown that two fully cache-sensitive, always busy jobs with 1 GiB together add to each
other. Fitted to the same table."""
CACHE_EXPONENT = 0.949
"""How that slowdown grows with the memory of the two. Fitted to the same table."""
TYPICAL_CACHE = 0.47
"""Cache sensitivity taken for an application of which only a profile is known: 1 is the table's
cache-sensitive kernel, 0.11 (fitted) its insensitive one. An assumption: the mean of those assumed
for the eleven applications in `data/applications.yaml`."""
SM_SATURATION = 0.6
"""SM occupancy at which the SMs are as fast as they get. An assumption; that full occupancy is
not needed for full speed is shown by V. Volkov, "Better Performance at Lower Occupancy"
(GTC 2010)."""

_GIB = float(1 << 30)
_ENOUGH = 1e-9


class Load(NamedTuple):
    """What a job asks of a GPU at a moment, when it has it to itself; shares are 0 to 1."""

    busy: float
    """Share of the time in which a kernel runs."""
    sm: float
    """Share of the SMs' throughput."""
    pcie: float
    """Share of the PCIe bandwidth."""
    memory: float
    """GiB in use."""
    cache: float
    """Sensitivity to the cache being shared."""
    limit: float = 1.0
    """Share of the SMs that it may use (its MPS thread percentage)."""


def load_of(
    step: Step, gpu: GPU, *, cache: float = TYPICAL_CACHE, thread_percent: int = 100
) -> Load:
    """Translate a step of a profile into shares of a GPU.

    Occupancy that was not measured (0) is taken to follow the GPU utilisation.
    """
    busy = min(step.gpu / 100, 1.0)
    sm = min(busy, step.core / (100 * SM_SATURATION)) if step.core else busy
    pcie = min(step.pcie / gpu.pcie_bandwidth, 1.0) if gpu.pcie_bandwidth else 0.0
    return Load(busy, sm, pcie, step.memory / _GIB, cache, (thread_percent or 100) / 100)


def slowdowns(loads: Sequence[Load], sharing: Sharing) -> list[float]:
    """Tell how much longer each of the jobs on one GPU takes than alone on it.

    Parameters
    ----------
    loads
        What each of them asks for.
    sharing
        How they share the GPU.

    Returns
    -------
    list of float
        At least 1 each, in the order of `loads`.
    """
    if sharing is not Sharing.MPS:
        if len(loads) < 2:
            return [1.0] * len(loads)
        by_turns = stretches([load.busy * SWITCH_OVERHEAD for load in loads])
        by_link = stretches([load.pcie for load in loads])
        return [turn + link - 1 for turn, link in zip(by_turns, by_link, strict=True)]
    if len(loads) < 2:
        return [max(1.0, load.sm / load.limit) for load in loads]
    by_sm = stretches([min(load.sm, load.limit) for load in loads])
    by_link = stretches([load.pcie for load in loads])
    return [
        max(sm, load.sm / load.limit) + link - 1 + missed
        for load, sm, link, missed in zip(loads, by_sm, by_link, _cache_misses(loads), strict=True)
    ]


def utilization(loads: Sequence[Load], slow: Sequence[float], sharing: Sharing) -> float:
    """Return the share of the time in which the GPU is busy.

    Waiting stretches the time in which a job's kernels run, not the rest of its time. Under MPS
    kernels overlap by chance; otherwise they take turns.

    Parameters
    ----------
    loads
        What each job on the GPU asks for.
    slow
        How much longer each takes than alone, in the same order.
    sharing
        How they share the GPU.
    """
    if sharing is Sharing.MPS:
        idle = 1.0
        for load, slowdown in zip(loads, slow, strict=True):
            idle *= (1 - load.busy) / slowdown
        return 1 - idle
    overhead = SWITCH_OVERHEAD if len(loads) > 1 else 1.0
    turns = [load.busy / slowdown for load, slowdown in zip(loads, slow, strict=True)]
    return min(1.0, overhead * sum(turns))


def memory_refused(wanted: int, others: int, capacity: int, limit: int | None) -> bool:
    """Tell whether a job that asks for memory is refused it, and so runs out of memory.

    Above its limit only the job itself is refused. When the GPU is full, it is the job that asked
    last.

    Parameters
    ----------
    wanted
        Bytes that the job would use.
    others
        Bytes that the other jobs use.
    capacity
        Bytes of the GPU.
    limit
        Bytes that the job may use; None without a limit.
    """
    return (limit is not None and wanted > limit) or wanted + others > capacity


def stretches(demands: Sequence[float]) -> list[float]:
    """Share one resource of size 1 fairly: how much longer each takes that asks for a part.

    A job that uses the resource for a share d of its time waits for it in proportion, so it takes
    1 + k d, with the k for which the resource is just full.

    Parameters
    ----------
    demands
        Natural shares, 0 or more.

    Returns
    -------
    list of float
        All 1 while the demands do not exceed the resource.
    """
    total = sum(demands)
    if total <= 1:
        return [1.0] * len(demands)
    k, shares = 0.0, demands
    while total > 1 + _ENOUGH:
        # Newton's method for the inverse of the sum: that is nearly straight, and bends so that
        # it is never overshot. The first step is exact where all ask for the same.
        k += total * (total - 1) / sum([share * share for share in shares])
        shares = [demand / (1 + k * demand) for demand in demands]
        total = sum(shares)
    return [1 + k * demand for demand in demands]


def _cache_misses(loads: Sequence[Load]) -> list[float]:
    """Return what the others' use of the cache adds to the time of each."""
    uses = [load.cache * load.busy for load in loads]
    added = [0.0] * len(loads)
    for index, load in enumerate(loads):
        for other in range(index):
            both = uses[index] * uses[other]
            if both:
                both *= CACHE_STRENGTH * (load.memory + loads[other].memory) ** CACHE_EXPONENT
                added[index] += both
                added[other] += both
    return added
