"""The network's inputs for an offer: images, predictions and statistics, scaled to about 1.

Each GPU has a **state** (its allocations and the waiting jobs). Each combination of the offered
jobs has a **candidate** (the allocations with it and the predictions of the interference model).
Combination 0 is empty: the GPU waits. The unit of time is the mean duration of the waiting and
running jobs. Memory is a share of the GPU. The numbers are therefore comparable between small and
large jobs and GPUs.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from partita_policies.dqn.combination_forecast import Bools, CombinationForecast, forecast
from partita_policies.dqn.demand import (
    BUSY,
    MEMORY,
    PCIE,
    RESOURCES,
    SM,
    STEPS,
    Catalogue,
    Floats,
)
from partita_policies.dqn.job_arrays import JobArrays
from partita_policies.dqn.offers import Backlog, Offer
from partita_policies.dqn.prices import ThroughputCache
from partita_policies.dqn.work_values import WorkValues, values_of
from partita_policies.types import Sharing

__all__ = [
    "CANDIDATE_FEATURES",
    "DUAL_VALUE",
    "FEATURE_VERSION",
    "IMAGE_STEPS",
    "STATE_FEATURES",
    "Observation",
    "observe",
]

FEATURE_VERSION = 2
"""Incremented when a feature changes its meaning. Models with another version are rejected."""
IMAGE_STEPS = 8
"""Equal steps of an image, from now to the predicted end of the last job of any combination."""
_IMAGE = IMAGE_STEPS * RESOURCES
STATE_FEATURES = _IMAGE + 22
CANDIDATE_FEATURES = _IMAGE + 32
DUAL_VALUE = _IMAGE + 3
"""Index of the initial dual value of the work per second in a candidate."""

_TOLERANCE = 1.001
_LARGEST = 4.0
"""Bound on the absolute value of every feature. It limits the distance from the training data."""
_QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)


class Observation(NamedTuple):
    """The network's inputs for G offers with A combinations each."""

    states: Floats
    """(G, STATE_FEATURES)."""
    candidates: Floats
    """(G, A, CANDIDATE_FEATURES); 0 for combinations that are legal for no offer."""
    legal: Bools
    """(G, A): which combinations may be chosen; at least one for each GPU."""
    dual_value: Floats
    """(G, A): initial dual value of the work per second, at most 1 (`prices`)."""
    units: Floats
    """(G): unit of time of `states` and `candidates`, in seconds."""
    bounds: Floats
    """(G): predicted lower bound on the time for all waiting and running work, in seconds."""


def observe(
    offers: Sequence[Offer],
    catalogue: Catalogue,
    sharing: Sharing,
    throughputs: ThroughputCache,
    *,
    slowdown_budget: float | None = None,
    mask: bool = True,
) -> Observation:
    """Compute the network's inputs for offers.

    Parameters
    ----------
    offers
        At least one.
    catalogue
        The demands to which the offers refer.
    sharing
        How jobs share a GPU.
    throughputs
        Cache of the throughputs of sets of jobs.
    slowdown_budget
        Largest predicted slowdown of any job relative to running alone; None: no bound.
    mask
        Whether to forbid combinations predicted to take longer than one job after the other, and
        waiting on an idle GPU. Always on, except in the ablation.
    """
    arrays = JobArrays(offers, catalogue.demands(), sharing)
    predicted = forecast(arrays.pool, arrays.members, sharing)
    last = predicted.finish.max(axis=0)
    legal = arrays.feasible & _allowed(arrays, predicted, last, slowdown_budget, mask=mask)
    others = legal[:, 1:].any(axis=0)
    if not others.all():
        kept = np.array([0, *(np.flatnonzero(others) + 1)])
        arrays.keep(kept)
        predicted = CombinationForecast(*(part[..., kept] for part in predicted))
        last, legal = last[:, kept], legal[:, kept]
    images = _images(arrays, predicted, last, legal)
    backlog = _backlogs(offers, arrays)
    value = values_of(offers, arrays, sharing, throughputs)
    (dual_value,) = _sums(value.price[None], predicted.speeds)
    inputs = _Inputs(arrays, predicted, last, images, backlog, value, dual_value)
    states, candidates = _states(inputs), _candidates(inputs)
    candidates, legal, dual_value = (
        _spread(part, arrays) for part in (candidates, legal, dual_value)
    )
    return Observation(states, candidates, legal, dual_value, backlog.unit, value.bound)


def _spread(part: NDArray[Any], arrays: JobArrays) -> NDArray[Any]:
    """Expand an array to all combinations, with 0 for those that are not in `arrays`."""
    whole = np.zeros((len(part), 1 << arrays.offered, *part.shape[2:]), part.dtype)
    whole[:, arrays.columns] = part
    return whole


class _Inputs(NamedTuple):
    """The data from which features are computed."""

    arrays: JobArrays
    predicted: CombinationForecast
    last: Floats
    """(G, A): seconds until the last job of each combination ends."""
    images: Floats
    backlog: "_Backlogs"
    value: WorkValues
    dual_value: Floats


def _allowed(
    arrays: JobArrays,
    predicted: CombinationForecast,
    last: Floats,
    budget: float | None,
    *,
    mask: bool,
) -> Bools:
    """Return which combinations take no longer than sequential runs and keep the budget."""
    count = arrays.members.sum(axis=0)
    allowed = np.ones(last.shape, bool)
    if mask:
        allowed = last <= _turns(arrays, last) * _TOLERANCE
    if budget is not None:
        slowest = (predicted.finish / arrays.pool.remaining[..., None]).max(axis=0)
        allowed &= slowest <= budget
    allowed |= count == 1
    fitting = allowed & arrays.feasible
    idle = count[:, 0] == 0
    allowed[:, 0] = ~(idle & fitting[:, 1:].any(axis=-1)) if mask else True
    return allowed


def _turns(arrays: JobArrays, last: Floats) -> Floats:
    """Return the seconds to finish the running jobs and then run the chosen ones sequentially."""
    own = arrays.pool.remaining[arrays.running :, :, None]
    return np.asarray(last[:, :1] + (own * arrays.chosen).sum(axis=0), np.float32)


def _images(
    arrays: JobArrays, predicted: CombinationForecast, last: Floats, legal: Bools
) -> Floats:
    """Return the use of each resource in each future step, (G, A, IMAGE_STEPS, RESOURCES)."""
    horizon = np.maximum(np.where(legal, last, 0).max(axis=-1), 1e-3)
    middle = ((np.arange(IMAGE_STEPS) + 0.5) / IMAGE_STEPS).astype(np.float32)
    at = horizon[:, None, None] * middle
    known, of = np.unique(arrays.demand, return_inverse=True)
    # The use of each demand in each of its steps. The last row is for jobs that have ended.
    table = np.zeros((len(known) * STEPS + 1, RESOURCES), np.float32)
    table[:-1] = arrays.demands.steps[known].reshape(-1, RESOURCES)
    firsts = (of.reshape(arrays.demand.shape) * STEPS)[..., None, None]
    image = np.zeros((*last.shape, IMAGE_STEPS, RESOURCES), np.float32)
    jobs = zip(predicted.finish[..., None], arrays.done[..., None, None], firsts, strict=True)
    for finish, done, first in jobs:  # one by one, because arrays of all jobs are large
        share = done + (1 - done) * at / np.maximum(finish, 1e-6)
        part = np.minimum((share * STEPS).astype(np.int64), STEPS - 1)
        image += table.take(np.where(at < finish, first + part, len(table) - 1), axis=0)
    image[..., PCIE] /= arrays.link[:, None, None]
    image[..., MEMORY] /= arrays.capacity[:, None, None]
    return np.asarray(image, np.float32)


class _Backlogs(NamedTuple):
    """Statistics of the waiting jobs for each offer, in seconds unless stated otherwise."""

    jobs: Floats
    work: Floats
    unit: Floats
    area: Floats
    """Work multiplied by its share of the SMs, including running jobs."""
    longest: Floats
    sm: Floats
    memory: Floats
    pcie: Floats
    quantiles: Floats
    """(G, 5): quantiles of the memory that a job allocates, as a share of the GPU."""


def _backlogs(offers: Sequence[Offer], arrays: JobArrays) -> _Backlogs:
    known: dict[int, tuple[float, ...]] = {}
    rows = []
    for offer in offers:
        row = known.get(id(offer.backlog))
        if row is None:
            row = known[id(offer.backlog)] = _waiting(offer.backlog, arrays)
        rows.append(row)
    table = np.array(rows, np.float32)
    running = arrays.there[: arrays.running]
    lengths = arrays.demands.durations[arrays.demand[: arrays.running]] * running
    jobs = table[:, 0] * table[:, 11] + running.sum(axis=0)
    unit = (table[:, 1] * table[:, 11] + lengths.sum(axis=0)) / np.maximum(jobs, 1)
    means = table[:, 3:6] / np.maximum(table[:, 1:2], 1e-6)
    means[:, 1] /= arrays.capacity
    means[:, 2] /= arrays.link
    quantiles = table[:, 6:11] / arrays.capacity[:, None]
    under_way = (arrays.pool.remaining * arrays.pool.loads[SM])[: arrays.running]
    area = table[:, 3] + (under_way * running).sum(axis=0)
    unit = np.maximum(unit, 1)
    sm, memory, pcie = (means[:, column].astype(np.float32) for column in range(3))
    return _Backlogs(table[:, 0], table[:, 1], unit, area, table[:, 2], sm, memory, pcie, quantiles)


def _waiting(backlog: Backlog, arrays: JobArrays) -> tuple[float, ...]:
    """Return statistics of the waiting jobs, sums divided by the GPUs; the GPU count is last."""
    counts = backlog.counts
    duration, used = (
        arrays.demands.durations[backlog.demands],
        arrays.demands.rests[backlog.demands, 0],
    )
    work = duration * counts
    order = np.argsort(backlog.memory, kind="stable")
    reached = np.cumsum(counts[order])
    places = np.searchsorted(reached, np.array(_QUANTILES) * reached[-1])
    quantiles = backlog.memory[order][np.minimum(places, len(order) - 1)]
    gpus = backlog.gpus
    return (
        counts.sum() / gpus, work.sum() / gpus, duration.max(),
        (work * used[:, SM]).sum() / gpus, (work * backlog.memory).sum() / gpus,
        (work * used[:, PCIE]).sum() / gpus, *quantiles.tolist(), float(gpus),
    )  # fmt: skip


def _states(inputs: _Inputs) -> Floats:
    arrays, predicted, last, images, backlog, value, dual_value = inputs
    unit, end = backlog.unit, last[:, 0]
    columns = [
        np.log1p(backlog.jobs) / 2,
        np.log1p(backlog.work / unit) / 2,
        backlog.area / unit / 4, value.bound / unit / 4, dual_value[:, 0],
        backlog.work * backlog.memory / unit / 4,
        backlog.sm, backlog.memory, backlog.pcie,
        np.log1p(backlog.longest / unit),
        backlog.longest / np.maximum(value.bound, 1),
        *backlog.quantiles.T,
        arrays.there[: arrays.running].sum(axis=0) / 4,
        1 - arrays.memory_after[:, 0],
        predicted.throughput[:, 0] / 2,
        np.log1p(end / unit),
        end / np.maximum(value.bound, 1),
        arrays.there[arrays.running :].sum(axis=0) / 6,
    ]  # fmt: skip
    return _side_by_side(images[:, 0].reshape(len(unit), _IMAGE), columns)


def _candidates(inputs: _Inputs) -> Floats:
    arrays, predicted, last, images, backlog, value, dual_value = inputs
    r, finish, remaining = arrays.running, predicted.finish, arrays.pool.remaining[..., None]
    chosen, members = arrays.chosen.astype(np.float32), arrays.members.astype(np.float32)
    count, together = chosen.sum(axis=0), members.sum(axis=0)
    at_least_one, some = np.maximum(count, 1), np.maximum(together, 1)
    unit = backlog.unit[:, None]
    slower = np.where(arrays.members, finish / remaining - 1, 0)
    lefts, loads = arrays.pool.remaining, arrays.pool.loads
    amounts = (lefts, lefts * loads[SM], lefts * value.price, loads[SM], loads[PCIE], loads[BUSY])
    work, area, priced, sm, pcie, busy = _sums(np.stack(amounts), members)
    own_work, own_sm = _sums(np.stack((lefts[r:], loads[SM, r:])), chosen)
    own_sm = own_sm / at_least_one
    own_longest = (remaining[r:] * chosen).max(axis=0, initial=0)
    before = (arrays.memory_after - arrays.memory_after[:, :1]) / at_least_one
    left = 1 - arrays.memory_after
    fitting = (backlog.quantiles[:, None] <= left[..., None]).mean(axis=-1)
    until = finish[:r].max(axis=0, initial=0)
    some_work = np.maximum(backlog.work, 1)[:, None]
    bound = np.maximum(value.bound, 1)[:, None]
    columns = [
        (count == 0).astype(np.float32),
        count / 3, together / 4,
        dual_value, dual_value - dual_value[:, :1], (1 - dual_value) * predicted.first / unit,
        (last - priced) / unit,
        last / bound,
        predicted.throughput / 2, (predicted.throughput - predicted.throughput[:, :1]),
        predicted.useful, area / np.maximum(last, 1e-3),
        (last - area) / unit,
        np.log1p(last / unit), np.log1p(predicted.first / unit),
        last / np.maximum(_turns(arrays, last), 1e-3),
        work / np.maximum(last, 1e-3) / 2,
        slower.max(axis=0, initial=0), slower.sum(axis=0) / some,
        (until - until[:, :1]) / unit,
        left, fitting,
        sm, np.minimum(sm, 1), pcie, busy / 2,
        own_work / at_least_one / unit,
        own_longest / np.maximum(backlog.longest, 1)[:, None],
        own_longest / bound,
        np.maximum(last / bound - 1, 0),
        own_work / some_work,
        np.where(count > 0, own_sm - backlog.sm[:, None] - before + backlog.memory[:, None], 0),
    ]  # fmt: skip
    return _side_by_side(images.reshape(*last.shape, _IMAGE), columns)


def _sums(amounts: Floats, members: Floats) -> Floats:
    """Sum amounts of jobs, (N, P, G), over the members of each combination, (N, G, A)."""
    sums: Floats = amounts.transpose(2, 0, 1) @ members.swapaxes(0, 1)
    return sums.swapaxes(0, 1)


def _side_by_side(images: Floats, columns: Sequence[NDArray[np.floating]]) -> Floats:
    """Concatenate images and other features, clipped to the bounds."""
    rows = np.empty((*images.shape[:-1], _IMAGE + len(columns)), np.float32)
    rows[..., :_IMAGE] = images
    for place, column in enumerate(columns, _IMAGE):
        rows[..., place] = column
    return rows.clip(-_LARGEST, _LARGEST, out=rows)
