"""Values of the work of each offer's jobs, derived from all waiting and running work."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from partita_policies.dqn.demand import PCIE, Demands, Floats, Integers
from partita_policies.dqn.job_arrays import JobArrays
from partita_policies.dqn.offers import Offer
from partita_policies.dqn.prices import Groups, ThroughputCache, group, prices
from partita_policies.types import Sharing

__all__ = ["WorkValues", "values_of"]

_UNPRICED = np.float32(-1)


class WorkValues(NamedTuple):
    """Prices of jobs' work and the total value of the remaining work."""

    price: Floats
    """(P, G): price of a second of each job's work."""
    bound: Floats
    """(G): total value of the remaining work, in seconds."""


class _Work(NamedTuple):
    """The waiting and running work per GPU."""

    demands: Integers
    seconds: Floats
    memory: Floats
    """GiB allocated."""


def values_of(
    offers: Sequence[Offer], arrays: JobArrays, sharing: Sharing, throughputs: ThroughputCache
) -> WorkValues:
    """Compute the prices of each offer's jobs from all waiting jobs and the offers' running jobs.

    Parameters
    ----------
    offers, arrays
        The offers and the arrays of their jobs.
    sharing
        How jobs share a GPU.
    throughputs
        Cache of the throughputs of sets of jobs.
    """
    alike: dict[tuple[int, float, float], list[int]] = {}
    gpus = zip(offers, arrays.capacity.tolist(), arrays.link.tolist(), strict=True)
    for row, (offer, *gpu) in enumerate(gpus):
        alike.setdefault((id(offer.backlog), *gpu), []).append(row)
    price = np.zeros_like(arrays.pool.remaining)
    bound = np.zeros(len(offers), np.float32)
    for (_, *gpu), rows in alike.items():
        capacity, link = gpu
        priced = offers[rows[0]].backlog.priced
        demand = arrays.demand[:, rows]
        known = priced.get((capacity, link))
        # A GPU without an offer before may have one now and run jobs that have no price yet.
        if known is None or bool((known[0][demand] == _UNPRICED).any()):
            work = _work([offers[row] for row in rows], arrays, rows, capacity)
            groups, of = _grouped(work, arrays.demands, link)
            of_groups = prices(groups.work, throughputs.of(groups, capacity, sharing))
            each = np.where(of < 0, _UNPRICED, of_groups[of])
            known = priced[capacity, link] = each, float(of_groups @ groups.work)
        each, bound[rows] = known
        price[:, rows] = each[demand]
    return WorkValues(price * arrays.there, bound)


def _grouped(work: _Work, demands: Demands, link: float) -> tuple[Groups, Integers]:
    """Return the groups of the work and the group of each demand, -1 for no work."""
    known, of = np.unique(work.demands, return_inverse=True)
    total = np.bincount(of, work.seconds)
    allocated = np.bincount(of, work.seconds * work.memory) / total
    # Prices need not be unique. Sorting makes them independent of the order of the jobs.
    order = np.lexsort((total, allocated, *demands.rests[known, 0].T))
    known, total, allocated = known[order], total[order], allocated[order]
    loads = demands.rests[known, 0]
    loads[:, PCIE] = np.minimum(loads[:, PCIE] / link, 1)
    limits = demands.limits[known]
    groups = group(loads, limits, allocated.astype(np.float32), total.astype(np.float32))
    places = np.full(len(demands.durations), -1, np.int64)
    places[known] = groups.of
    return groups, places


def _work(
    offers: Sequence[Offer], arrays: JobArrays, rows: Sequence[int], capacity: float
) -> _Work:
    """Return the waiting work per GPU and the mean running work of the GPUs with offers."""
    backlog, r = offers[0].backlog, arrays.running
    there = arrays.there[:r, rows].T
    left = arrays.pool.remaining[:r, rows].T[there] / len(rows)
    held = np.array([memory for offer in offers for memory in offer.allocated], np.float32)
    allocated = np.where(backlog.alone, np.float32(capacity), backlog.memory)
    work = arrays.demands.durations[backlog.demands] * backlog.counts / backlog.gpus
    demands = np.concatenate((backlog.demands, arrays.demand[:r, rows].T[there]))
    seconds = np.maximum(np.concatenate((work, left)), 1e-3)
    return _Work(demands, seconds, np.concatenate((allocated, held)))
