"""How combinations of jobs would get on with each other, predicted for many at once.

`partita_policies.interference` in arrays: the same model, for every combination on every GPU in
one pass. Each job is taken to ask for the mean of what its profile has left, so a prediction is
exact for constant profiles and an approximation for others.

Axes: P jobs in the pool that combinations are made of, G GPUs, A combinations for each. Jobs come
first, so that sums over them run along whole rows: there are few of them, and many combinations.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from partita_policies.dqn.demand import BUSY, MEMORY, PCIE, SM, Floats
from partita_policies.interference import (
    CACHE_EXPONENT,
    CACHE_STRENGTH,
    SWITCH_OVERHEAD,
    TYPICAL_CACHE,
)
from partita_policies.types import Sharing

__all__ = ["CombinationForecast", "Pool", "forecast", "slowdowns_of"]

Bools = NDArray[np.bool_]

_EVENTS = 3
"""Ends of jobs followed one by one; those after it are taken to go on at the speed they have."""
_NEWTON = 4
"""Steps at most; after three of them shares add up to less than 4e-3 too much."""
_ENOUGH = 3e-4


class Pool(NamedTuple):
    """The jobs that combinations are made of."""

    loads: Floats
    """(RESOURCES, P, G): mean use, PCIe as a share of the link."""
    limit: Floats
    """(P, G): share of the SMs that each may use."""
    remaining: Floats
    """(P, G): seconds left when alone; above zero."""


class CombinationForecast(NamedTuple):
    """What becomes of each combination when nothing else is started."""

    finish: Floats
    """(P, G, A): seconds until each job ends; 0 for those outside."""
    speeds: Floats
    """(P, G, A): seconds of its work that each job does in a second, at first."""
    throughput: Floats
    """(G, A): the sum of these."""
    useful: Floats
    """(G, A): share of the SMs that does work then; cache misses and idle SMs lack."""
    first: Floats
    """(G, A): seconds until the first job ends; 0 without jobs."""


def forecast(pool: Pool, members: Bools, sharing: Sharing) -> CombinationForecast:
    """Predict when each job of each combination ends.

    Parameters
    ----------
    pool
        The jobs.
    members
        (P, G, A): which of them make each combination.
    sharing
        How they share the GPU.
    """
    model = _Model(pool, sharing)
    on, active = members, members.astype(np.float32)
    left = pool.remaining[..., None] * active
    finish = np.zeros_like(left)
    now = np.zeros(members.shape[1:], np.float32)
    at_first, first = active, now
    for event in range(_EVENTS):
        slow = model.slowdowns(active)
        until = np.where(on, left * slow, np.float32(np.inf))
        step = until.min(axis=0, initial=np.inf)
        step[np.isinf(step)] = 0
        if event == 0:
            at_first, first = active / slow, step
        now = now + step
        left = np.maximum(left - step / slow, 0) * active
        ended = on & (left <= _ENOUGH * (1 + step))
        np.copyto(finish, now, where=ended)
        on = on & ~ended
        if not on.any():
            break
        active = on.astype(np.float32)
    else:
        np.copyto(finish, now + left * model.slowdowns(active), where=on)
    useful = (at_first * pool.loads[SM, ..., None]).sum(axis=0)
    return CombinationForecast(finish, at_first, at_first.sum(axis=0), useful, first)


def slowdowns_of(pool: Pool, members: Bools, sharing: Sharing) -> Floats:
    """Tell how much longer than alone each member takes while all of them run, (P, G, A)."""
    return _Model(pool, sharing).slowdowns(members.astype(np.float32))


class _Model:
    """The interference model over one pool."""

    def __init__(self, pool: Pool, sharing: Sharing) -> None:
        busy, sm, pcie, memory = (pool.loads[column] for column in (BUSY, SM, PCIE, MEMORY))
        self._mps = sharing is Sharing.MPS
        self._pcie = pcie[..., None]
        self._link_is_enough = bool(pcie.sum(axis=0).max(initial=0) <= 1 + _ENOUGH)
        if self._mps:
            self._demand = np.minimum(sm, pool.limit)[..., None]
            self._least = np.maximum(sm / pool.limit, 1)[..., None]
            weight, memory = (TYPICAL_CACHE * busy).T, memory.T
            both = memory[:, :, None] + memory[:, None, :]
            misses = weight[:, :, None] * weight[:, None, :] * both**CACHE_EXPONENT
            misses[:, np.arange(misses.shape[1]), np.arange(misses.shape[1])] = 0
            self._misses: Floats = np.asarray(CACHE_STRENGTH * misses, np.float32)
        else:
            self._demand = (busy * SWITCH_OVERHEAD)[..., None]

    def slowdowns(self, active: Floats) -> Floats:
        """Return the slowdown of each job beside the active ones, at least 1."""
        slow = _stretch(self._demand, active)
        if self._mps:
            slow = np.maximum(slow, self._least)
        if not self._link_is_enough:
            slow = slow + (_stretch(self._pcie, active) - 1)
        if self._mps:
            return slow + (self._misses @ active.swapaxes(0, 1)).swapaxes(0, 1)
        return np.where(active.sum(axis=0) > 1, slow, np.float32(1))


def _stretch(demand: Floats, active: Floats) -> Floats:
    """Share one resource of size 1 fairly; see `interference.stretches`."""
    asked = demand * active
    total = asked.sum(axis=0)
    if total.max(initial=0) <= 1 + _ENOUGH:
        return np.ones_like(asked)
    k = np.zeros_like(total)
    slowed = asked
    for _ in range(_NEWTON):
        # Newton's method for the inverse of the sum, which is nearly straight.
        squares = (slowed * slowed).sum(axis=0)
        k = np.maximum(k + total * (total - 1) / np.maximum(squares, 1e-9), 0)
        slowed = asked / (1 + k * asked)
        total = slowed.sum(axis=0)
        if total.max() <= 1 + _ENOUGH:
            break
    return np.asarray(1 + k * demand, np.float32)
