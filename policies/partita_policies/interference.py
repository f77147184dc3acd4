"""Interference model: slowdown of jobs that share a GPU.

The simulator, the simulated nodes and the policies use the same model. Policies only have the
profiles. The simulator also has the actual cache sensitivity of each application.

Each job has a demand for each resource when it runs alone: SMs, memory bandwidth, PCIe link and
cache. If the demands for one resource exceed its capacity, the jobs share it fairly (`stretches`).
SMs and memory bandwidth are used at the same time, so the scarcer one counts. Jobs whose kernels
run at the same time also evict each other's cache lines (`CACHE_STRENGTH`). Time-slicing avoids
this, but costs context switches (`SWITCH_OVERHEAD`).

The arithmetic is in C (`native/interference.c`). docs/interference.md compares the model with
pairs that others have measured.
"""

from collections.abc import Sequence
from ctypes import CDLL, c_double
from dataclasses import fields
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

from partita_policies.native import library
from partita_policies.types import GPU, Sharing, Step

__all__ = [
    "AMOUNTS",
    "CACHE_BOUND",
    "CACHE_EXPONENT",
    "CACHE_STRENGTH",
    "MOST_JOBS",
    "SHARING_CODES",
    "SM_OF_BUSY",
    "SM_SATURATION",
    "SWITCH_OVERHEAD",
    "TYPICAL_CACHE",
    "Load",
    "amounts_of",
    "load_of",
    "slowdowns",
    "sm_share",
    "stretches",
    "utilization",
]

SWITCH_OVERHEAD = 1.071
"""Time under time-slicing for work that takes 1 when it runs alone. Fitted to Table 1 of
"Analyzing GPU Performance on Containers" (Son, Kim, Han); see
`tests/simulator/test_calibration.py`."""
CACHE_STRENGTH = 0.579
"""Slowdown that two fully cache-sensitive, always busy jobs with 1 GiB in total add to each
other. Fitted to the same table."""
CACHE_EXPONENT = 0.949
"""Exponent of the growth of that slowdown with the memory of both jobs. Fitted likewise."""
CACHE_BOUND = 1.5
"""Largest slowdown that two fully cache-sensitive, always busy jobs add to each other: a cache
that is lost cannot be lost again. Assumed: a little more than at the second largest input of that
table (1.3). At its largest input the program was slowed down far more (docs/interference.md)."""
TYPICAL_CACHE = 0.33
"""Assumed cache sensitivity of an application of which only a profile is known: the geometric mean
of the table's sensitive program (1) and its insensitive one (0.11, fitted)."""
SM_OF_BUSY = 0.84
"""Assumed share of the SMs that work while a kernel runs, where the occupancy is not measured:
DCGM's "SM active" of a language model that generates without pause on an H200 (fergusfinn,
mps-embedding-inference, REPORT)."""
SM_SATURATION = 0.6
"""Assumed SM occupancy at which the SMs reach full speed. V. Volkov, "Better Performance at Lower
Occupancy" (GTC 2010), shows that full speed does not need full occupancy."""


class Load(NamedTuple):
    """Load of a job on a GPU without co-located jobs; shares are 0 to 1."""

    busy: float
    """Share of the time in which a kernel runs."""
    sm: float
    """Share of the SMs' throughput."""
    pcie: float
    """Share of the PCIe bandwidth."""
    memory: float
    """GiB in use."""
    cache: float
    """Sensitivity to a shared cache."""
    limit: float = 1.0
    """Share of the SMs that the job may use: its MPS thread percentage, or its static partition."""
    bandwidth: float = 0.0
    """Share of the memory's bandwidth; 0 if not measured."""


_FIELDS = len(Load._fields)
MOST_JOBS = 128
"""Most jobs on one GPU: the largest maxJobs of a partition."""
SHARING_CODES = {Sharing.EXCLUSIVE: 0, Sharing.TIME_SLICING: 1, Sharing.MPS: 2}
"""Numbers of the sharing modes in the native library, as in `native/interference.h`."""
AMOUNTS = tuple(field.name for field in fields(Step))
"""Names of the amounts of a step, in the order of `native/interference.h`."""
amounts_of = attrgetter(*AMOUNTS)
_Amounts, _Load = c_double * len(AMOUNTS), c_double * _FIELDS


@cache
def _native() -> CDLL:
    loaded = library()
    loaded.sm_share.restype = loaded.utilization.restype = c_double
    loaded.load_of.argtypes = (_Amounts, c_double, c_double, c_double, _Load)
    loaded.load_of.restype = None
    return loaded


def sm_share(step: Step) -> float:
    """Return the share of the SMs' throughput, 0 to 1, that a step of a profile uses.

    An occupancy of 0 means not measured: `SM_OF_BUSY` of the GPU utilisation is assumed.
    """
    share: float = _native().sm_share(_Amounts(*amounts_of(step)))
    return share


def load_of(
    step: Step, gpu: GPU, *, cache: float = TYPICAL_CACHE, thread_percent: int = 100
) -> Load:
    """Convert a step of a profile to shares of a GPU."""
    limit, out = gpu.thread_share(thread_percent), _Load()
    _native().load_of(_Amounts(*amounts_of(step)), gpu.pcie_bandwidth, cache, limit, out)
    return Load(*out)


def slowdowns(
    loads: Sequence[Load], sharing: Sharing, factors: Sequence[float] | None = None
) -> list[float]:
    """Return the slowdown of each job on one GPU relative to running alone.

    Parameters
    ----------
    loads
        Load of each job, at most 128.
    sharing
        How the jobs share the GPU.
    factors
        One row for each job and one column for each other: by how much the job is slower beside
        the other than predicted, as the cluster has seen. None: nothing has been seen.

    Returns
    -------
    list of float
        At least 1 each, in the order of `loads`.
    """
    count = _checked(len(loads))
    out = (c_double * count)()
    amounts = (c_double * (count * _FIELDS))(*chain.from_iterable(loads))
    pairs = None if factors is None else (c_double * (count * count))(*factors)
    _native().slowdowns(amounts, count, SHARING_CODES[sharing], pairs, out)
    return out[:]


def utilization(loads: Sequence[Load], slow: Sequence[float], sharing: Sharing) -> float:
    """Return the share of the time in which the GPU is busy.

    Parameters
    ----------
    loads
        Load of each job on the GPU.
    slow
        Slowdown of each job, in the same order.
    sharing
        How the jobs share the GPU.
    """
    count = _checked(len(loads))
    amounts = (c_double * (count * _FIELDS))(*chain.from_iterable(loads))
    slower = (c_double * count)(*slow)
    busy: float = _native().utilization(amounts, slower, count, SHARING_CODES[sharing])
    return busy


def stretches(demands: Sequence[float]) -> list[float]:
    """Return the slowdowns of jobs that share one resource of size 1 fairly.

    A job that uses the resource for a share d of its time waits for it in proportion to d. Its
    slowdown is 1 + k d, with the k for which the resource is exactly full.

    Parameters
    ----------
    demands
        Natural shares, 0 or more; at most 128.

    Returns
    -------
    list of float
        All 1 while the demands do not exceed the resource.
    """
    count = _checked(len(demands))
    out = (c_double * count)()
    _native().stretches((c_double * count)(*demands), count, out)
    return out[:]


def _checked(count: int) -> int:
    if count > MOST_JOBS:
        raise ValueError(f"{count} jobs on a GPU: at most {MOST_JOBS} can be predicted")
    return count
