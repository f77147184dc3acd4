"""Duals of work: by how much a second of it lengthens the least time that all of it takes."""

from ctypes import Structure, byref, c_double, c_int

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ortools.linear_solver import pywraplp

from partita_policies.interference import Load
from partita_policies.native import library

GROUPS, SETS = 10, 1001
MPS, EXCLUSIVE = 2, 0
Row = tuple[float, float, float, float]


class Programme(Structure):
    """`Programme` of native/duals.h."""

    _fields_ = (
        ("groups", c_int),
        ("sets", c_int),
        ("rate", c_double * GROUPS * SETS),
        ("alone", c_int * GROUPS),
    )


def duals_of(*rows: Row, exclusive: bool = False) -> tuple[list[float], list[int], np.ndarray]:
    """Return the dual of each (busy and SMs, PCIe, memory, seconds), its group, and the rates."""
    loads = np.array([Load(one, one, pcie, 0.0, 0.0, 1.0, 0.0) for one, pcie, _, _ in rows])
    memory, work = (np.array([row[place] for row in rows]) for place in (2, 3))
    of, programme = np.zeros(len(rows), np.int32), Programme()
    sharing = EXCLUSIVE if exclusive else MPS
    library().programme(
        byref(programme), loads.ctypes, memory.ctypes, work.ctypes, len(rows), sharing, of.ctypes,
    )  # fmt: skip
    sums = np.bincount(of, work, GROUPS)
    dual = np.zeros(GROUPS)
    library().solve_duals(byref(programme), sums.ctypes, dual.ctypes)
    rates = np.array(programme.rate)[: programme.sets]
    return dual[of].tolist(), of.tolist(), rates


def least_time(rates: np.ndarray, work: np.ndarray) -> float:
    solver = pywraplp.Solver.CreateSolver("GLOP")
    seconds = [solver.NumVar(0, solver.infinity(), "") for _ in rates]
    for group, amount in enumerate(work):
        done = sum(float(rate[group]) * time for rate, time in zip(rates, seconds, strict=True))
        solver.Add(done >= float(amount))
    solver.Minimize(sum(seconds))
    solver.Solve()
    return float(solver.Objective().Value())


ROW = st.tuples(st.floats(0.05, 1), st.floats(0, 0.4), st.floats(0.01, 1.1), st.floats(1, 5000))


@given(st.lists(ROW, min_size=1, max_size=25))
def test_duals_are_those_of_the_least_time(rows: list[Row]) -> None:
    dual, of, rates = duals_of(*rows)
    work = np.array([row[3] for row in rows])
    by_group = np.zeros(GROUPS)
    by_group[of] = dual
    assert min(dual) >= 0
    assert (rates @ by_group).max() <= 1 + 1e-6
    least = least_time(rates, np.bincount(of, work, GROUPS))
    assert float(dual @ work) == pytest.approx(least, rel=2e-3)


@given(st.lists(ROW, min_size=GROUPS + 1, max_size=40))
def test_many_kinds_are_few_groups(rows: list[Row]) -> None:
    _, of, _ = duals_of(*rows)
    assert sorted(set(of)) == list(range(max(of) + 1))
    assert max(of) < GROUPS


def test_work_that_goes_with_everything_is_cheap_and_work_that_goes_with_nothing_is_dear() -> None:
    (light, heavy), _, _ = duals_of((0.2, 0.0, 0.05, 100.0), (1.0, 0.0, 0.99, 1000.0))
    assert heavy > 0.9
    assert light < 0.5


def test_alone_on_their_gpus_all_work_is_worth_its_seconds() -> None:
    dual, _, _ = duals_of((0.2, 0.0, 0.05, 100.0), (0.3, 0.0, 0.1, 50.0), exclusive=True)
    assert dual == pytest.approx([1.0, 1.0])
