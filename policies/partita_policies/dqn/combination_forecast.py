"""Predicted durations and slowdowns for many combinations of jobs at once.

This is the model of `partita_policies.interference`, evaluated with arrays for every combination
on every GPU in one pass. The demand of each job is the mean over the rest of its profile. A
prediction is therefore exact for constant profiles and an approximation for others.

Axes: P jobs from which combinations are formed, G GPUs, A combinations for each GPU. Jobs are the
first axis, so that sums over them run along whole rows: jobs are few and combinations are many.
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
"""Ends of jobs that are simulated one by one. The remaining jobs keep their speed after them."""
_NEWTON = 4
"""Maximum number of steps. After three steps the sum of the shares is less than 4e-3 too large."""
_ENOUGH = 3e-4


class Pool(NamedTuple):
    """The jobs from which combinations are formed."""

    loads: Floats
    """(RESOURCES, P, G): mean use, PCIe as a share of the link."""
    limit: Floats
    """(P, G): share of the SMs that each job may use."""
    remaining: Floats
    """(P, G): remaining seconds without co-located jobs; above zero."""


class CombinationForecast(NamedTuple):
    """Predictions for each combination if no other job is started."""

    finish: Floats
    """(P, G, A): seconds until each job ends; 0 for jobs outside the combination."""
    speeds: Floats
    """(P, G, A): initial speed of each job, in seconds of its work per second."""
    throughput: Floats
    """(G, A): sum of the speeds."""
    useful: Floats
    """(G, A): share of the SMs that initially does work; excludes idle SMs and cache misses."""
    first: Floats
    """(G, A): seconds until the first job ends; 0 without jobs."""


def forecast(pool: Pool, members: Bools, sharing: Sharing) -> CombinationForecast:
    """Predict when each job of each combination ends.

    Parameters
    ----------
    pool
        The jobs.
    members
        (P, G, A): whether a job belongs to a combination.
    sharing
        How the jobs share the GPU.
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
    """Return the slowdown of each member relative to running alone, (P, G, A)."""
    return _Model(pool, sharing).slowdowns(members.astype(np.float32))


class _Model:
    """The interference model of one pool."""

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
        """Return the slowdown of each job by the active jobs, at least 1."""
        slow = _stretch(self._demand, active)
        if self._mps:
            slow = np.maximum(slow, self._least)
        if not self._link_is_enough:
            slow = slow + (_stretch(self._pcie, active) - 1)
        if self._mps:
            return slow + (self._misses @ active.swapaxes(0, 1)).swapaxes(0, 1)
        return np.where(active.sum(axis=0) > 1, slow, np.float32(1))


def _stretch(demand: Floats, active: Floats) -> Floats:
    """Return the slowdowns from fair sharing of one resource; see `interference.stretches`."""
    asked = demand * active
    total = asked.sum(axis=0)
    if total.max(initial=0) <= 1 + _ENOUGH:
        return np.ones_like(asked)
    k = np.zeros_like(total)
    slowed = asked
    for _ in range(_NEWTON):
        # Newton's method for the inverse of the sum, which is nearly linear.
        squares = (slowed * slowed).sum(axis=0)
        k = np.maximum(k + total * (total - 1) / np.maximum(squares, 1e-9), 0)
        slowed = asked / (1 + k * asked)
        total = slowed.sum(axis=0)
        if total.max() <= 1 + _ENOUGH:
            break
    return np.asarray(1 + k * demand, np.float32)
