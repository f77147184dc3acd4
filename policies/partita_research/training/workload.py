"""Simulated workloads in the native library, whose decisions can be recorded.

The simulation is the one of plans (`native/cluster.c`): profiles are exact and every application
is as sensitive to the cache as policies assume, so that effects that no policy can predict do not
hide the effect of a decision.
"""

from collections.abc import Sequence
from ctypes import addressof, byref, c_double, c_uint64
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from partita_policies.capacity import FreeCapacity
from partita_policies.native import library
from partita_policies.planner.cluster import ClusterArrays
from partita_policies.planner.structures import (
    ARRIVAL,
    INPUTS,
    NativeRecord,
    NativeSettings,
    address,
)
from partita_policies.simulator.tasks import Task
from partita_policies.types import GPU, Sharing

__all__ = ["ChoiceRecorder", "Episode", "TrainingWorkload", "Trials"]


class Episode(NamedTuple):
    """One simulation of a workload, and its decisions with more than one choice."""

    makespan: float
    total: float
    """Sum of the completion times, seconds."""
    inputs: NDArray[np.float32]
    """(rows, INPUTS): what the network sees of each choice."""
    gains: NDArray[np.float32]
    costs: NDArray[np.float32]
    """(rows,): what the rest of the simulation costs after each choice, seconds; NaN: not tried."""
    first: NDArray[np.int32]
    """(decisions + 1): first row of each decision."""
    chosen: NDArray[np.int32]
    """Row of the choice made, for each decision."""
    units: NDArray[np.float64]
    """Mean seconds of a job, at each decision."""


class Trials(NamedTuple):
    """Which choices of a simulation are tried: from each, it is simulated to its end."""

    target: NativeSettings
    """How a trial goes on after the choice."""
    chance: float
    """That a decision is tried."""
    choices: int = 8
    """Of a decision, half of them the best by their score, the others at random."""
    runs: int = 1
    """Of each trial: the first greedy, the others sampled. The best counts, as in Q-learning."""


class ChoiceRecorder:
    """Room for the record of a simulation, used again and again.

    Parameters
    ----------
    rows, decisions
        At most so many are recorded, the first ones.
    """

    def __init__(self, rows: int = 40_000, decisions: int = 2_000) -> None:
        self._inputs = np.zeros((rows, INPUTS), np.float32)
        self._gain, self._cost = np.zeros((2, rows), np.float32)
        self._first = np.zeros(decisions + 1, np.int32)
        self._chosen = np.zeros(decisions, np.int32)
        self._unit = np.zeros(decisions)

    def native(self, trials: Trials | None = None) -> NativeRecord:
        """Return an empty record."""
        return NativeRecord(
            address(self._inputs), address(self._gain), address(self._cost),
            address(self._first), address(self._chosen), address(self._unit),
            0, 0, len(self._inputs), len(self._chosen),
            *((trials.choices, trials.runs, 0, trials.chance) if trials else (0, 0, 0, 0.0)),
            addressof(trials.target) if trials else None, None, None,
        )  # fmt: skip

    def episode(self, record: NativeRecord, makespan: float, total: float) -> Episode:
        """Return copies of what was recorded."""
        rows, count = record.rows, record.decisions
        return Episode(
            makespan, total, self._inputs[:rows].copy(), self._gain[:rows].copy(),
            self._cost[:rows].copy(), self._first[: count + 1].copy(),
            self._chosen[:count].copy(), self._unit[:count].copy(),
        )  # fmt: skip


class TrainingWorkload:
    """Jobs that arrive at idle GPUs, which they share by MPS."""

    def __init__(self, tasks: Sequence[Task], gpus: Sequence[GPU]) -> None:
        self.jobs = len(tasks)
        self._cluster = cluster = ClusterArrays(gpus, Sharing.MPS, typical=600.0)
        rows = sorted((task.job.submitted, cluster.kind(task.job)) for task in tasks)
        self._arrivals = np.zeros(len(rows), ARRIVAL)
        self._arrivals["time"] = [time for time, _ in rows]
        self._arrivals["kind"] = [kind for _, kind in rows]
        self._problem = cluster.problem()
        self._state = cluster.state(FreeCapacity(gpus))

    def arrive(self, times: NDArray[np.float64]) -> None:
        """Set the times when the jobs arrive, ascending."""
        self._arrivals["time"] = times

    def play(
        self,
        settings: NativeSettings,
        seed: int = 0,
        recorder: ChoiceRecorder | None = None,
        trials: Trials | None = None,
    ) -> Episode:
        """Simulate to the end.

        Parameters
        ----------
        settings
            How to decide.
        seed
            Of the choices, which are sampled by their scores; 0: always the best.
        recorder
            Room for a record.
        trials
            Which choices are tried, if choices are sampled.
        """
        room = recorder or ChoiceRecorder(1, 1)
        record = room.native(trials)
        result = (c_double * 2)()
        made = library().play(
            byref(self._problem), byref(self._state), self._arrivals.ctypes, self.jobs,
            byref(settings), c_uint64(seed), byref(record) if recorder else None, result,
        )  # fmt: skip
        if made < 0:
            raise ArithmeticError("the network gave scores that are no numbers")
        return room.episode(record, result[0], result[1])
