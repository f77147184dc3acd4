"""Prices of work: the dual of the least time that all of it takes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ortools.linear_solver import pywraplp

from partita_policies.dqn.demand import BUSY, MEMORY, PCIE, RESOURCES, SM
from partita_policies.dqn.prices import GROUPS, Groups, ThroughputCache, group, prices
from partita_policies.types import Sharing

CAPACITY = 12.0


def kinds(*rows: tuple[float, float, float, float]) -> Groups:
    """Make groups of (busy and SMs, PCIe, GiB, seconds)."""
    loads = np.zeros((len(rows), RESOURCES), np.float32)
    loads[:, BUSY] = loads[:, SM] = [row[0] for row in rows]
    loads[:, PCIE] = [row[1] for row in rows]
    loads[:, MEMORY] = [row[2] for row in rows]
    work = np.array([row[3] for row in rows], np.float32)
    return group(loads, np.ones(len(rows), np.float32), loads[:, MEMORY], work)


def least_time(groups: Groups, throughputs: np.ndarray) -> float:
    solver = pywraplp.Solver.CreateSolver("GLOP")
    seconds = [solver.NumVar(0, solver.infinity(), "") for _ in throughputs]
    for place, work in enumerate(groups.work):
        done = sum(
            float(throughput[place]) * time
            for throughput, time in zip(throughputs, seconds, strict=True)
        )
        solver.Add(done >= float(work))
    solver.Minimize(sum(seconds))
    solver.Solve()
    return float(solver.Objective().Value())


ROW = st.tuples(st.floats(0.05, 1), st.floats(0, 0.4), st.floats(0.1, 13), st.floats(1, 5000))


@given(st.lists(ROW, min_size=1, max_size=GROUPS))
def test_prices_are_those_of_the_least_time(rows):
    groups = kinds(*rows)
    throughputs = ThroughputCache().of(groups, CAPACITY, Sharing.MPS)

    price = prices(groups.work, throughputs)

    assert price.min() >= 0
    assert (throughputs @ price).max() <= 1 + 1e-4
    assert float(price @ groups.work) == pytest.approx(least_time(groups, throughputs), rel=2e-3)


@given(st.lists(ROW, min_size=GROUPS + 1, max_size=40))
def test_groups_of_many_kinds_lose_no_work(rows):
    groups = kinds(*rows)

    assert len(groups.work) <= GROUPS
    assert groups.of.shape == (len(rows),)
    assert float(groups.work.sum()) == pytest.approx(sum(row[3] for row in rows), rel=1e-4)


def test_what_goes_with_everything_is_cheap_and_what_goes_with_nothing_is_dear():
    groups = kinds((0.2, 0.0, 0.5, 100.0), (1.0, 0.0, 11.9, 1000.0))

    light, heavy = prices(groups.work, ThroughputCache().of(groups, CAPACITY, Sharing.MPS))

    assert heavy > 0.9
    assert light < 0.5


def test_alone_on_their_gpus_all_work_is_worth_its_seconds():
    groups = kinds((0.2, 0.0, 0.5, 100.0), (0.3, 0.0, 1.0, 50.0))

    price = prices(groups.work, ThroughputCache().of(groups, CAPACITY, Sharing.EXCLUSIVE))

    assert price == pytest.approx([1.0, 1.0])
