"""How much better a trained policy is than its own prior, on workloads that it never saw.

The runs are those of the simulator, with profiles that deviate from the truth. The difference is
paired: both policies run the same workloads.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from statistics import fmean

from typing_extensions import override

from partita_policies.types import Objective, Policy
from partita_research.estimates import half_width
from partita_research.simulator import simulate
from partita_research.training.scenarios import Scenario

__all__ = ["Improvement", "TrainReport", "held_out"]

_FIRST = 2_000_000_000
"""First number of the workloads of a report; nothing is chosen on them."""


@dataclass(frozen=True, slots=True)
class Improvement:
    """The trained policy against the untrained one, on workloads that it did not learn from."""

    mean: float | None
    """Mean of the relative differences; below 0 it is better. Null if the trained policy lets a job
    wait for ever."""
    interval: float
    """Half of the 95 % confidence interval."""
    workloads: int

    @property
    def clear(self) -> bool:
        """Whether it is better than the prior, by an interval clear of 0."""
        return self.mean is not None and self.mean + self.interval < 0

    @override
    def __str__(self) -> str:
        """Return it in percent."""
        if self.mean is None:
            return "infinitely worse, for a job waits for ever"
        return f"{self.mean:+.2%} ± {self.interval:.2%} (n = {self.workloads})"


@dataclass(frozen=True, slots=True)
class TrainReport:
    """A training."""

    training: dict[str, float | str]
    """The settings."""
    curves: dict[str, list[float]]
    """By network: mean cost of each iteration; of dqn as a share of that before the training, less
    1, of the others as a multiple of the longest job."""
    correlations: dict[str, list[float]]
    """By network of dqn: correlation of the values of an iteration's choices with what they then
    cost, within decisions, before the network learnt from them."""
    held_out: dict[str, Improvement]
    """By objective."""


def held_out(
    policy: Policy,
    prior: Policy,
    draw: Callable[[int], Scenario],
    *,
    objective: Objective = Objective.MAKESPAN,
    workloads: int = 400,
) -> Improvement:
    """Compare a policy with its prior.

    Parameters
    ----------
    prior
        The policy before the training.
    draw
        Returns the scenario of a number; those of negative numbers have inaccurate profiles.
    """
    differences = []
    for number in range(workloads):
        scenario = draw(-_FIRST - number)
        costs = []
        for one in (policy, prior):
            result = simulate(scenario.tasks, [scenario.gpu], one, objective=objective)
            whole = result.makespan
            costs.append(whole if objective is Objective.MAKESPAN else result.mean_completion)
        if not isfinite(costs[0]):  # it is never better, whatever the untrained policy does
            return Improvement(None, 0.0, number + 1)
        differences.append(costs[0] / costs[1] - 1)
    return Improvement(fmean(differences), half_width(differences), workloads)
