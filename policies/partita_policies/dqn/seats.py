"""The jobs of each offer, running and offered, side by side in arrays.

Axes: G offers, A combinations of the offered jobs, P jobs: those running, then those offered.
"""

from collections.abc import Sequence
from functools import cache
from itertools import product

import numpy as np

from partita_policies.dqn.board import Offer
from partita_policies.dqn.demand import PCIE, STEPS, Catalogue, Floats, Integers
from partita_policies.dqn.forecast import Bools, Pool, slowdowns_of
from partita_policies.types import Sharing

__all__ = ["Seats", "subsets"]

OVERDUE = 0.95
"""Share of its work done by a job that runs longer than expected. An assumption."""


@cache
def subsets(window: int) -> Bools:
    """Return all combinations of `window` jobs, (2**window, window); nobody comes first."""
    return np.array(list(product((False, True), repeat=window)), bool)


class Seats:
    """The jobs of each offer, running and offered, side by side in arrays."""

    def __init__(self, offers: Sequence[Offer], catalogue: Catalogue, sharing: Sharing) -> None:
        durations, limits, steps, rests = catalogue.arrays()
        self.durations, self.limits, self.steps, self.rests = durations, limits, steps, rests
        g, r = len(offers), max(len(offer.running) for offer in offers)
        m = max(len(offer.jobs) for offer in offers)
        self.running = r
        demand = np.zeros((g, r + m), np.int64)
        there, elapsed = np.zeros((g, r + m), bool), np.zeros((g, r + m), np.float32)
        wanted, slots, clients, alone = (np.zeros((g, m), np.float64) for _ in range(4))
        capacity, free = np.ones(g), np.zeros((g, 3))
        link = np.zeros(g, np.float32)
        for row, offer in enumerate(offers):
            for place, (index, seconds) in enumerate(offer.running):
                demand[row, place], elapsed[row, place] = index, seconds
            there[row, : len(offer.running)] = True
            count = len(offer.jobs)
            demand[row, r : r + count], there[row, r : r + count] = offer.demands, True
            gpu = offer.free.gpu
            for place, job in enumerate(offer.jobs):
                wanted[row, place] = gpu.memory if job.alone else job.memory
                slots[row, place], clients[row, place] = job.slots, job.clients
                alone[row, place] = job.alone
            capacity[row] = max(gpu.memory, 1)
            free[row] = offer.free.memory, offer.free.slots, offer.free.clients
            link[row] = gpu.pcie_bandwidth
        self.capacity = (capacity / (1 << 30)).astype(np.float32)
        combinations = subsets(m)
        chosen = combinations[None] & there[:, None, r:]
        own = (combinations[None] == chosen).all(axis=-1)
        before = np.broadcast_to(there[:, None, :r], (g, len(combinations), r))
        self.chosen, self.members = chosen, np.concatenate((before, chosen), axis=-1)
        self.there = there
        takes = [np.einsum("gam,gm->ga", chosen, amount) for amount in (wanted, slots, clients)]
        count = chosen.sum(axis=-1)
        hermits = np.einsum("gam,gm->ga", chosen, alone)
        # A job's memory is exact as a double up to 8 PiB, so this is Room's own comparison.
        fits = (takes[0] <= free[:, None, 0]) | (count == 0)
        fits &= (takes[1] <= free[:, None, 1]) & (takes[2] <= free[:, None, 2])
        self.room: Bools = own & fits & ((hermits == 0) | (count == 1))
        self.room[:, 0] = True
        after = (capacity - free[:, 0])[:, None] + takes[0]
        self.memory_after = (after / capacity[:, None]).clip(0, 1).astype(np.float32)
        self._pool(demand, elapsed, limits, link, sharing)

    def _pool(
        self, demand: Integers, elapsed: Floats, limits: Floats, link: Floats, sharing: Sharing
    ) -> None:
        r = self.running
        duration = self.durations[demand]
        self.link = np.where(link > 0, link, np.float32(np.inf))[:, None]
        self.demand = demand
        whole = Pool(self._loads(self.rests[demand, 0]), limits[demand], duration)
        self.done = np.zeros_like(duration)
        if r:
            on_it = self.there.copy()
            on_it[:, r:] = False
            slow = slowdowns_of(whole, on_it[:, None], sharing)[:, 0, :r]
            self.done[:, :r] = _done(elapsed[:, :r], slow, duration[:, :r], on_it[:, :r])
        self.part = np.minimum((self.done * STEPS).astype(np.int64), STEPS - 1)
        loads = self._loads(self.rests[demand, self.part])
        self.pool = Pool(loads, limits[demand], duration * (1 - self.done))

    def _loads(self, used: Floats) -> Floats:
        loads = used.copy()
        loads[..., PCIE] = np.minimum(loads[..., PCIE] / self.link, 1)
        return loads


def _done(elapsed: Floats, slow: Floats, duration: Floats, there: Bools) -> Floats:
    """Estimate which share of its work each running job has done.

    It ran as fast as now while others that are still there ran, and as fast as alone before. Jobs
    that have gone are not known, so after sharing with those this says too much.
    """
    both = np.minimum(elapsed[:, :, None], elapsed[:, None, :]) * there[:, None, :]
    both[:, np.arange(both.shape[1]), np.arange(both.shape[1])] = 0
    shared = both.max(axis=-1)
    done = (elapsed - shared + shared / slow) / duration
    return np.asarray(np.minimum(done, OVERDUE), np.float32)
