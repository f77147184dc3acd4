"""How combinations of jobs would get on with each other, predicted for many at once.

`partita_policies.interference` in arrays: the same model, for every combination on every GPU in
one pass. Each job is taken to ask for the mean of what its profile has left, so a prediction is
exact for constant profiles and an approximation for others.

Axes: G GPUs, A combinations for each, P jobs in the pool that combinations are made of.
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

__all__ = ["Forecast", "Pool", "forecast", "slowdowns_of"]

Bools = NDArray[np.bool_]

_EVENTS = 3
"""Ends of jobs followed one by one; those after it are taken to go on at the speed they have."""
_NEWTON = 6
_ENOUGH = 3e-4


class Pool(NamedTuple):
    """The jobs that combinations are made of."""

    loads: Floats
    """(G, P, RESOURCES): mean use, PCIe as a share of the link."""
    limit: Floats
    """(G, P): share of the SMs that each may use."""
    remaining: Floats
    """(G, P): seconds left when alone; above zero."""


class Forecast(NamedTuple):
    """What becomes of each combination when nothing else is started."""

    finish: Floats
    """(G, A, P): seconds until each job ends; 0 for those outside."""
    speeds: Floats
    """(G, A, P): seconds of its work that each job does in a second, at first."""
    pace: Floats
    """(G, A): the sum of these."""
    useful: Floats
    """(G, A): share of the SMs that does work then; cache misses and idle SMs lack."""
    first: Floats
    """(G, A): seconds until the first job ends; 0 without jobs."""


def forecast(pool: Pool, members: Bools, sharing: Sharing) -> Forecast:
    """Predict when each job of each combination ends.

    Parameters
    ----------
    pool
        The jobs.
    members
        (G, A, P): which of them make each combination.
    sharing
        How they share the GPU.
    """
    model = _Model(pool, sharing)
    active = members.astype(np.float32)
    left = np.where(members, pool.remaining[:, None, :], np.float32(0))
    finish = np.zeros_like(left)
    now = np.zeros((*members.shape[:2], 1), np.float32)
    at_first, first = active, now
    for event in range(_EVENTS):
        slow = model.slowdowns(active)
        until = np.where(active > 0, left * slow, np.float32(np.inf))
        step = until.min(axis=-1, keepdims=True, initial=np.inf)
        step[np.isinf(step)] = 0
        if event == 0:
            at_first, first = active / slow, step
        now = now + step
        left = np.maximum(left - step / slow, 0) * active
        ended = (active > 0) & (left <= _ENOUGH * (1 + step))
        finish = np.where(ended, now, finish)
        active = np.where(ended, np.float32(0), active)
        if not active.any():
            break
    else:
        finish = np.where(active > 0, now + left * model.slowdowns(active), finish)
    useful = np.einsum("gap,gp->ga", at_first, pool.loads[..., SM])
    return Forecast(finish, at_first, at_first.sum(axis=-1), useful, first[..., 0])


def slowdowns_of(pool: Pool, members: Bools, sharing: Sharing) -> Floats:
    """Tell how much longer than alone each member takes while all of them run, (G, A, P)."""
    return _Model(pool, sharing).slowdowns(members.astype(np.float32))


class _Model:
    """The interference model over one pool."""

    def __init__(self, pool: Pool, sharing: Sharing) -> None:
        loads = pool.loads
        self._mps = sharing is Sharing.MPS
        self._pcie = loads[:, None, :, PCIE]
        if self._mps:
            self._demand = np.minimum(loads[..., SM], pool.limit)[:, None, :]
            self._least = np.maximum(loads[..., SM] / pool.limit, 1)[:, None, :]
            weight = TYPICAL_CACHE * loads[..., BUSY]
            both = loads[:, :, None, MEMORY] + loads[:, None, :, MEMORY]
            misses = weight[:, :, None] * weight[:, None, :] * both**CACHE_EXPONENT
            misses[:, np.arange(misses.shape[1]), np.arange(misses.shape[1])] = 0
            self._misses = (CACHE_STRENGTH * misses).astype(np.float32)
        else:
            self._demand = (loads[..., BUSY] * SWITCH_OVERHEAD)[:, None, :]

    def slowdowns(self, active: Floats) -> Floats:
        """Return the slowdown of each job beside the active ones, at least 1."""
        by_link = _stretch(self._pcie, active)
        shared = _stretch(self._demand, active)
        if self._mps:
            misses = active @ self._misses
            return np.asarray(np.maximum(shared, self._least) + by_link - 1 + misses, np.float32)
        several = active.sum(axis=-1, keepdims=True) > 1
        return np.where(several, shared + by_link - 1, np.float32(1))


def _stretch(demand: Floats, active: Floats) -> Floats:
    """Share one resource of size 1 fairly; see `interference.stretches`."""
    asked = demand * active
    total = asked.sum(axis=-1, keepdims=True)
    if total.max(initial=0) <= 1 + _ENOUGH:
        return np.ones_like(asked)
    squares = (asked * asked).sum(axis=-1, keepdims=True)
    k = np.maximum(total - 1, 0) / np.maximum(squares, 1e-9)
    for _ in range(_NEWTON - 1):
        slowed = asked / (1 + k * asked)
        excess = slowed.sum(axis=-1, keepdims=True) - 1
        if excess.max() <= _ENOUGH:
            break
        slope = np.einsum("gap,gap->ga", slowed, slowed)[..., None]
        k = np.maximum(k + excess / np.maximum(slope, 1e-9), 0)
    return np.asarray(1 + k * demand, np.float32)
