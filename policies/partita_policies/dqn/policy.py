"""The policy: the planner, with a deep Q-network that corrects the gains of its choices."""

from pathlib import Path
from typing import ClassVar

from pydantic import Field

from partita_policies.network import Network
from partita_policies.planner.policy import GOALS, Planner, PlannerParameters
from partita_policies.planner.structures import HIDDEN, INPUTS
from partita_policies.types import Parameters

__all__ = ["DQN", "KIND", "VERSION", "WEIGHTS", "DQNParameters"]

KIND, VERSION = "dqn", 4
"""Of the model file."""
WEIGHTS = INPUTS * HIDDEN + HIDDEN + HIDDEN * HIDDEN + HIDDEN + HIDDEN + 1


class DQNParameters(PlannerParameters):
    """Parameters of `DQN`."""

    model: Path | None = Field(
        default=None,
        description="File that `partita train` wrote; by default the one of this package.",
    )


class DQN(Planner):
    """Start the jobs that a deep Q-network values most and simulated plans confirm.

    It differs from `planner` by the network alone: what it has learnt of the cost of a choice is
    added to the gains that propose choices. With `work: 0` the network decides alone.
    """

    parameters: ClassVar[type[Parameters]] = DQNParameters

    def __init__(self, parameters: DQNParameters) -> None:
        shapes = {goal.name: (WEIGHTS,) for goal in GOALS.values()}
        self.model = Network.load(parameters.model, KIND, VERSION, shapes)
        super().__init__(parameters, self.model.arrays)
