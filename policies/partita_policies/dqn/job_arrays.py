"""Arrays of the running and offered jobs of all offers.

Axes: P jobs (first running, then offered), G offers, A combinations of the offered jobs.
"""

from collections.abc import Sequence
from functools import cache
from itertools import chain, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partita_policies.dqn.combination_forecast import Bools, Pool, slowdowns_of
from partita_policies.dqn.demand import PCIE, STEPS, Demands, Floats, Integers
from partita_policies.dqn.offers import Offer
from partita_policies.types import Sharing

__all__ = ["JobArrays", "padded", "subsets"]

OVERDUE = 0.95
"""Assumed share of the work done by a job that runs longer than expected."""
_GIB = 1 << 30


@cache
def subsets(window: int) -> Bools:
    """Return all combinations of `window` jobs, (2**window, window), the empty one first."""
    return np.array(list(product((False, True), repeat=window)), bool)


@cache
def _columns(window: int) -> NDArray[np.float64]:
    """Return the transpose of `subsets` as floats, (window, 2**window), for matrix products."""
    return subsets(window).T.astype(np.float64)


def padded(rows: Sequence[Sequence[Any]], dtype: Any, width: int = 0) -> tuple[NDArray[Any], Bools]:
    """Pad rows with zeros to equal length.

    Returns
    -------
    tuple
        Table with a column for each row, (P, G), where P is the largest length or at least
        `width`; mask of the entries that are not padding.
    """
    lengths = [len(row) for row in rows]
    there = np.arange(max(width, *lengths, 0)) < np.array(lengths)[:, None]
    table = np.zeros(there.shape, dtype)
    table[there] = list(chain.from_iterable(rows))
    return table.T.copy(), there.T.copy()


class JobArrays:
    """Arrays of the running and offered jobs of all offers.

    Contains only combinations that fit at least one offer. The empty combination is first.
    """

    columns: Integers
    """(A): indices of the combinations in `subsets`."""
    feasible: Bools
    """(G, A): whether the combination fits."""
    memory_after: Floats
    """(G, A): share of the memory that is allocated with the combination."""
    chosen: Bools
    """(offered jobs, G, A): whether an offered job is in a combination."""
    members: Bools
    """(P, G, A): the same for all jobs; running jobs are in every combination."""

    def __init__(self, offers: Sequence[Offer], demands: Demands, sharing: Sharing) -> None:
        self.demands = demands
        demand, there = padded([offer.running for offer in offers], np.int64)
        offered, theirs = padded([offer.demands for offer in offers], np.int64)
        elapsed, _ = padded([offer.elapsed for offer in offers], np.float32)
        self.running, self.offered = len(demand), len(offered)
        self.demand = np.concatenate((demand, offered))
        self.there = np.concatenate((there, theirs))
        gpus = [offer.free.gpu for offer in offers]
        self.capacity = np.array([max(gpu.memory, 1) / _GIB for gpu in gpus], np.float32)
        link = np.array([gpu.pcie_bandwidth for gpu in gpus], np.float32)
        self.link = np.where(link > 0, link, np.float32(np.inf))
        self._combine(offers, theirs)
        self._pool(elapsed, there, sharing)

    def keep(self, columns: Integers) -> None:
        """Remove all combinations except these."""
        self.columns = self.columns[columns]
        self.feasible, self.memory_after = self.feasible[:, columns], self.memory_after[:, columns]
        self.chosen, self.members = self.chosen[..., columns], self.members[..., columns]

    def _combine(self, offers: Sequence[Offer], theirs: Bools) -> None:
        """Find the combinations that fit."""
        asked = [
            [(offer.free.gpu.memory if job.alone else job.memory, job.slots, job.clients, job.alone)
             for job in offer.jobs]
            for offer in offers
        ]  # fmt: skip
        amounts = np.zeros((5, *theirs.T.shape))
        amounts[:4, theirs.T] = np.array(list(chain.from_iterable(asked)), np.float64).T
        amounts[4] = ~theirs.T
        combinations = _columns(self.offered)
        memory, slots, clients, exclusive, absent = amounts @ combinations
        left = [(offer.free.memory, offer.free.slots, offer.free.clients) for offer in offers]
        free = np.array(left, np.float64).T[..., None]
        # Memory sizes are exact as doubles up to 8 PiB, so FreeCapacity gives the same results.
        feasible = (memory <= free[0]) & (slots <= free[1]) & (clients <= free[2]) & (absent == 0)
        feasible &= (exclusive == 0) | (combinations.sum(axis=0) == 1)
        feasible[:, 0] = True
        self.columns = np.flatnonzero(feasible.any(axis=0))
        self.feasible = feasible[:, self.columns]
        capacity = np.array([max(offer.free.gpu.memory, 1) for offer in offers], np.float64)
        after = (capacity - free[0, :, 0])[:, None] + memory[:, self.columns]
        self.memory_after = (after / capacity[:, None]).clip(0, 1).astype(np.float32)
        taken = combinations[:, self.columns] > 0
        self.chosen = taken[:, None] & theirs[..., None]
        before = np.repeat(self.there[: self.running, :, None], len(self.columns), axis=2)
        self.members = np.concatenate((before, self.chosen))

    def _pool(self, elapsed: Floats, there: Bools, sharing: Sharing) -> None:
        r, demand, demands = self.running, self.demand, self.demands
        duration, limit = demands.durations[demand], demands.limits[demand]
        self.done = np.zeros_like(duration)
        if elapsed.any():
            whole = Pool(self._loads(demand[:r], 0), limit[:r], duration[:r])
            slow = slowdowns_of(whole, there[..., None], sharing)[..., 0]
            self.done[:r] = _done(elapsed, slow, duration[:r], there)
        part = np.minimum((self.done * STEPS).astype(np.int64), STEPS - 1)
        self.pool = Pool(self._loads(demand, part), limit, duration * (1 - self.done))

    def _loads(self, demand: Integers, part: Integers | int) -> Floats:
        loads: Floats = np.moveaxis(self.demands.rests[demand, part], -1, 0).copy()
        loads[PCIE] = np.minimum(loads[PCIE] / self.link, 1)
        return loads


def _done(elapsed: Floats, slow: Floats, duration: Floats, there: Bools) -> Floats:
    """Estimate the share of its work that each running job has done.

    A job is assumed to have run at its present speed while any present co-located job ran, and at
    full speed before. Finished jobs are unknown, so the estimate is too high if the job shared the
    GPU with them.
    """
    both = np.minimum(elapsed[:, None], elapsed[None]) * there[None]
    both[np.arange(len(both)), np.arange(len(both))] = 0
    shared = both.max(axis=1)
    done = (elapsed - shared + shared / slow) / duration
    return np.asarray(np.minimum(done, OVERDUE), np.float32)
