"""Prices of a second of each job's work, derived from all waiting and running work.

If jobs could be interrupted at any time, the shortest time for all work would be the solution of
a linear programme. Its variables are the times for which each set of jobs that fits a GPU runs.
(`tests/bench/policies/optimum.py` solves it as a bound.) The dual solution gives every job a
price: the increase of the makespan for one more second of the job's work. The dual value of the
work that a set does in a second is at most 1, and exactly 1 for the sets of the shortest schedule.
A job that runs well with few others has a high price. A job that fills gaps has a low price.

The programme has a constraint for each group of similar jobs and a variable for each set of
groups. The revised simplex method therefore solves it in a few dozen steps. Each step adds the
set with the highest value at the current prices (P. Gilmore, R. Gomory, "A Linear Programming
Approach to the Cutting-Stock Problem", Operations Research 9, 1961). At the end the prices are
scaled so that the value of no set exceeds 1. The prices are then a lower bound on the time, also
if the method stops early.
"""

from collections.abc import Hashable
from functools import cache
from itertools import combinations_with_replacement
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from partita_policies.dqn.combination_forecast import Pool, slowdowns_of
from partita_policies.dqn.demand import RESOURCES, SM, Floats, Integers
from partita_policies.types import Sharing

__all__ = ["GROUPS", "Groups", "ThroughputCache", "group", "prices"]

GROUPS = 10
"""Maximum number of groups of similar jobs; ten groups have about a thousand sets of four jobs."""
_TOGETHER = 4
"""Maximum number of jobs in a set. Larger sets are assumed to add little and cost time."""
_STEPS = 100
_BETTER = 1e-4
_KEPT = 256


class Groups(NamedTuple):
    """K job classes combined into N groups of similar jobs."""

    of: Integers
    """(K): the group of each class."""
    loads: Floats
    """(N, RESOURCES): mean use, PCIe as a share of the link."""
    limit: Floats
    """(N): share of the SMs that a job may use."""
    memory: Floats
    """(N): GiB allocated by a job."""
    work: Floats
    """(N): seconds."""


def group(loads: Floats, limit: Floats, memory: Floats, work: Floats) -> Groups:
    """Combine job classes into at most `GROUPS` groups.

    Parameters
    ----------
    loads
        (K, RESOURCES).
    limit, memory, work
        (K): as in `Groups`, for each class.
    """
    classes = len(work)
    if classes <= GROUPS:
        return Groups(np.arange(classes), loads, limit, memory, work)
    of = _buckets(np.stack((memory, loads[:, SM]), axis=1), work)
    count = int(of.max()) + 1
    weight = np.maximum(work, 1e-6)
    total = np.bincount(of, weight, count)

    def mean(amounts: Floats) -> Floats:
        return np.asarray(np.bincount(of, weight * amounts, count) / total, np.float32)

    together = np.stack([mean(loads[:, place]) for place in range(RESOURCES)], axis=1)
    work_of = np.bincount(of, work, count).astype(np.float32)
    return Groups(of, together, mean(limit), mean(memory), work_of)


def _buckets(points: NDArray[np.floating], weight: Floats) -> Integers:
    """Repeatedly split the part with the widest spread at its weighted median along that axis."""
    scale = np.maximum(points.max(axis=0) - points.min(axis=0), 1e-9)
    points = points / scale
    parts = [np.arange(len(points))]
    spreads = [_spread(points)]
    while len(parts) < GROUPS:
        widest = max(range(len(parts)), key=lambda place: max(spreads[place]))
        part, spread = parts[widest], max(spreads[widest])
        if not spread:
            break
        axis = spreads[widest].index(spread)
        order = part[np.argsort(points[part, axis], kind="stable")]
        values = points[order, axis]
        reached = np.cumsum(weight[order])
        middle = int(np.searchsorted(reached, reached[-1] / 2))
        cut = int(np.searchsorted(values, values[min(middle, len(order) - 1)], side="right"))
        if cut == len(order):
            cut = int(np.searchsorted(values, values[-1], side="left"))
        halves = [order[:cut], order[cut:]]
        parts[widest : widest + 1] = halves
        spreads[widest : widest + 1] = [_spread(points[half]) for half in halves]
    of = np.zeros(len(points), np.int64)
    for place, part in enumerate(parts):
        of[part] = place
    return of


def _spread(points: NDArray[np.floating]) -> list[float]:
    """Return the range of the points along each axis."""
    spread: list[float] = (points.max(axis=0) - points.min(axis=0)).tolist()
    return spread


@cache
def _sets(groups: int) -> Integers:
    """Return all sets of up to `_TOGETHER` jobs as their groups, (S, _TOGETHER); -1 for no job."""
    rows = [
        (*members, *[-1] * (_TOGETHER - size))
        for size in range(1, _TOGETHER + 1)
        for members in combinations_with_replacement(range(groups), size)
    ]
    return np.array(rows, np.int64).reshape(-1, _TOGETHER)


class ThroughputCache:
    """Throughputs of sets of jobs, kept between decisions."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, Floats] = {}

    def of(self, groups: Groups, capacity: float, sharing: Sharing) -> Floats:
        """Return the work per second of each group in each set that fits, (S, N).

        Parameters
        ----------
        groups
            The groups.
        capacity
            GiB of the GPU.
        sharing
            How jobs share the GPU.
        """
        key = (
            groups.loads.tobytes(), groups.limit.tobytes(), groups.memory.tobytes(),
            capacity, sharing,
        )  # fmt: skip
        throughputs = self._kept.get(key)
        if throughputs is None:
            if len(self._kept) >= _KEPT:
                self._kept.clear()
            throughputs = self._kept[key] = _throughputs(groups, capacity, sharing)
        return throughputs


def _throughputs(groups: Groups, capacity: float, sharing: Sharing) -> Floats:
    count = len(groups.work)
    sets = _sets(count)
    there = sets >= 0
    allocated = np.where(there, groups.memory[sets], 0).sum(axis=1)
    # A job that needs more memory than this GPU has runs on another: it is assumed to run alone.
    fits = (allocated <= capacity * (1 + 1e-6)) | (there.sum(axis=1) == 1)
    if sharing is Sharing.EXCLUSIVE:
        fits = there.sum(axis=1) == 1
    sets, there = sets[fits], there[fits]
    sets, there = sets.T, there.T
    loads = np.moveaxis(groups.loads[sets], -1, 0)
    pool = Pool(loads, groups.limit[sets], np.ones(sets.shape, np.float32))
    throughput = 1 / slowdowns_of(pool, there[..., None], sharing)[..., 0]
    throughputs = np.zeros((sets.shape[1], count), np.float32)
    for members, them, speeds in zip(sets, there, throughput, strict=True):
        rows = np.flatnonzero(them)
        throughputs[rows, members[rows]] += speeds[rows]
    return throughputs


def prices(work: Floats, throughputs: Floats) -> Floats:
    """Compute the price of a second of each group's work.

    Parameters
    ----------
    work
        (N): seconds of work, when each job runs alone.
    throughputs
        (S, N): work per second of each group in each set.

    Returns
    -------
    ndarray
        (N): seconds. The value of the work of any set in a second is at most 1. `prices @ work`
        is at most the time that all work takes.
    """
    count = len(work)
    # Initially every job runs alone: a set of one job comes first among the sets of its group.
    there = throughputs > 0
    alone = (there & (there.sum(axis=1) == 1)[:, None]).argmax(axis=0)
    inverse = np.diag(1 / throughputs[alone, np.arange(count)].astype(float))
    cost = np.ones(count)
    runs = inverse @ np.maximum(work, 1e-3)
    price = cost @ inverse
    for _ in range(_STEPS):
        dual_value = throughputs @ price
        best = int(dual_value.argmax())
        if dual_value[best] - 1 > -price.min():
            entering, spends, gain = throughputs[best].astype(float), 1.0, dual_value[best] - 1
        else:  # enter the surplus variable of the group with the lowest price
            least = int(price.argmin())
            entering, spends, gain = np.zeros(count), 0.0, -price[least]
            entering[least] = -1.0
        if gain < _BETTER:
            break
        step = inverse @ entering
        ratios = np.where(step > 1e-12, runs / np.maximum(step, 1e-12), np.inf)
        leaving = int(ratios.argmin())
        if np.isinf(ratios[leaving]):
            break
        runs = np.maximum(runs - ratios[leaving] * step, 0)
        runs[leaving] = ratios[leaving]
        row = inverse[leaving] / step[leaving]
        inverse = inverse - np.outer(step, row)
        inverse[leaving] = row
        cost[leaving] = spends
        price = cost @ inverse
    price = np.maximum(price, 0)
    return np.asarray(price / max(float((throughputs @ price).max()), 1e-9), np.float32)
