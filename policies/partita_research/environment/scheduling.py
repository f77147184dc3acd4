"""The environment: one episode is one simulated workload, from its first job to its last."""

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from typing_extensions import override

from partita_policies.simulator.engine import Simulation
from partita_policies.simulator.results import Result
from partita_policies.simulator.tasks import Task
from partita_policies.types import GPU, Objective
from partita_research.environment.choices import (
    GPU_FEATURES,
    JOB_FEATURES,
    Bools,
    Choices,
    Floats,
)
from partita_research.simulator.synthetic import random_tasks

__all__ = ["ID", "Draw", "SchedulingEnv", "synthetic_workload"]

ID = "partita/Scheduling-v0"
"""For `gymnasium.make`, once this module is imported: from 1.0 on Gymnasium loads no plug-ins."""

Draw = Callable[[int, Sequence[GPU]], Sequence[Task]]
"""Draws the workload of an episode by its number; the same number gives the same workload."""

_SEEDS = 1_000_000_000
"""Number of workloads; benchmarks report on numbers far above."""
_GPU = GPU("gpu-0", "node-0", 16 << 30, max_jobs=48, pcie_bandwidth=15_750_000_000)
"""A GPU of 16 GiB behind a PCIe 3.0 link of 16 lanes."""


def synthetic_workload(number: int, gpus: Sequence[GPU]) -> Sequence[Task]:
    """Draw 30 jobs for each GPU, all there at the start; their profiles err by 20 %."""
    return random_tasks(number, 30 * len(gpus), gpus[0])


class SchedulingEnv(gymnasium.Env[Floats, np.int64]):
    """Decide which waiting job starts next, and on which GPU.

    An action starts a job of one of `window` applications on one of the GPUs, or (the last one)
    lets time pass until a job arrives or ends. The agent is asked only where it can start a job.
    `action_masks` says which actions are possible, and so does `info["action_mask"]`: those of a
    `ChoicePolicy`, so that what is learnt here can be done in a cluster. Another action counts as
    letting time pass, or as the first possible one where that would wait for nothing.

    The sum of the rewards is minus the cost of the workload under the objective: with Makespan
    the seconds to the end of the last job, with Completion the seconds that all jobs spend in the
    queue and on GPUs, otherwise both in equal parts. It is measured in units in which it would
    be about -1 if each GPU ran one job after the other.

    Parameters
    ----------
    gpus
        The GPUs, all alike.
    window
        As in `Choices`.
    objective
        What shall be achieved.
    draw
        Draws the workloads.
    """

    def __init__(
        self,
        gpus: Sequence[GPU] = (_GPU,),
        *,
        window: int = 8,
        objective: Objective = Objective.MAKESPAN,
        draw: Draw = synthetic_workload,
    ) -> None:
        self._gpus = tuple(gpus)
        self._window = window
        self._objective = objective
        self._draw = draw
        features = window * JOB_FEATURES + len(self._gpus) * GPU_FEATURES
        self.observation_space = spaces.Box(0.0, 1.0, (features,), np.float32)
        self.action_space = spaces.Discrete(window * len(self._gpus) + 1)
        self._simulation: Simulation
        self._choices: Choices | None = None
        self._mask = np.zeros(int(self.action_space.n), np.bool_)
        self._units = (1.0, 1.0)

    @override
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Floats, dict[str, Any]]:
        """Start the next workload; a seed determines it and those that follow."""
        super().reset(seed=seed, options=options)
        tasks = self._draw(int(self.np_random.integers(_SEEDS)), self._gpus)
        self._simulation = Simulation(tasks, self._gpus, objective=self._objective)
        if any(task.job.gpus > 1 for task in tasks):
            raise ValueError("the environment starts jobs on one GPU each; one needs several")
        alone = self._simulation.work_total / len(self._gpus) or 1.0
        self._units = (alone, alone * max(len(tasks), 1) / 2)
        self._go_on()
        return self._observation(), self._info()

    @override
    def step(self, action: np.int64) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        """Start a job or let time pass; the reward is minus the cost of the time that passed."""
        choices = self._choices
        if choices is None:
            raise RuntimeError("the episode is over: call reset()")
        chosen = int(action)
        if not self._mask[chosen]:
            chosen = choices.wait if self._mask[choices.wait] else int(self._mask.argmax())
        before = self._cost()
        ended = choices.take(chosen)
        if not ended:
            self._mask = choices.mask()
            ended = not self._mask[: choices.wait].any()
        if ended:
            self._simulation.apply(choices.placements)
            self._go_on()
        over = self._choices is None
        return self._observation(), before - self._cost(), over, False, self._info()

    def action_masks(self) -> Bools:
        """Return whether each action is possible (the name is that of sb3-contrib)."""
        return self._mask

    def result(self) -> Result:
        """Return what the simulation has recorded so far."""
        return self._simulation.result()

    def _go_on(self) -> None:
        """Let time pass until a job can be started, or to the end."""
        while (snapshot := self._simulation.next_decision()) is not None:
            choices = Choices(snapshot, self._window, len(self._gpus))
            self._mask = choices.mask()
            if self._mask[: choices.wait].any():
                self._choices = choices
                return
            self._simulation.apply(())
        self._choices = None
        self._mask = np.zeros_like(self._mask)

    def _cost(self) -> float:
        """Return the cost so far, in the units of the rewards."""
        makespan = self._simulation.now / self._units[0]
        completion = self._simulation.seconds_in_system / self._units[1]
        match self._objective:
            case Objective.MAKESPAN:
                return makespan
            case Objective.COMPLETION:
                return completion
            case _:
                return (makespan + completion) / 2

    def _observation(self) -> Floats:
        if self._choices is None:
            return np.zeros(self.observation_space.shape or (), np.float32)
        return self._choices.observation()

    def _info(self) -> dict[str, Any]:
        return {
            "action_mask": self._mask.astype(np.int8),
            "seconds": self._simulation.now,
            "seconds_in_system": self._simulation.seconds_in_system,
        }


gymnasium.register(ID, entry_point=f"{__name__}:SchedulingEnv")
