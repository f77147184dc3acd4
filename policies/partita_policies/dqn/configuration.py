"""All settings of a training except the workloads. They are written into the trained model."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Training"]


class Training(BaseModel):
    """Settings of one training.

    Notes
    -----
    The initial values are those of CleanRL's `dqn.py` and of the papers named in
    `partita_research.training.learning`. Other values were chosen on the validation workloads.
    No reported figure is measured on these workloads.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    algorithm: Literal["dqn", "study"] = "dqn"
    seed: int = 0
    iterations: int = Field(default=96, ge=1)
    """Rounds of running workloads and then updating the network."""
    episodes: int = Field(default=16, ge=1)
    """Workloads run in parallel in an iteration."""
    updates: int = Field(default=80, ge=1)
    """Gradient steps in an iteration."""
    batch: int = Field(default=64, ge=1)
    replay: int = Field(default=40_000, ge=1)
    """Capacity of the replay buffer, in decisions."""
    learning_rate: float = Field(default=1e-3, gt=0)
    """Initial value; decreases linearly to a tenth."""
    gamma: float = Field(default=1.0, gt=0, le=1)
    """Discount per mean duration of a job."""
    steps: int = Field(default=1, ge=1)
    """Decisions whose rewards are summed before the network's estimate is added (n-step return)."""
    polyak: float = Field(default=0.005, gt=0, le=1)
    """Weight of the network in the update of the target network at each step."""
    clip: float = Field(default=5.0, gt=0)
    """Bound on the norm of the gradient."""
    first_epsilon: float = Field(default=0.6, ge=0, le=1)
    last_epsilon: float = Field(default=0.25, ge=0, le=1)
    """Share of random actions, initially and from `exploration` on. It stays large, because the
    network forgets the value of choices that it no longer makes."""
    exploration: float = Field(default=1.0, gt=0, le=1)
    """Share of the iterations in which epsilon decreases."""
    prior: float = Field(default=2.0, ge=0)
    """Weight of the dual value (`prices`) that is added to the estimates when combinations are
    compared. The errors of the estimates exceed the differences between combinations. Among
    combinations with similar estimates, the one that loses no time now is preferred."""
    hidden: int = Field(default=48, ge=1)
    """Width of the network's layers."""
    window: int = Field(default=6, ge=1, le=8)
    """Job classes offered at a time. The policy may use another window."""
    double: bool = True
    dueling: bool = True
    mask: bool = True
    shared: bool = True
    """Whether one scorer serves all combinations; otherwise each has its own output."""
    validation: int = Field(default=80, ge=1)
    """Workloads outside the training set, on which the best network is selected."""
    validate_every: int = Field(default=12, ge=1)
    """Iterations between two points of the learning curve."""

    def epsilon(self, iteration: int) -> float:
        """Return the share of random actions of an iteration."""
        fallen = min(iteration / (self.exploration * self.iterations), 1.0)
        return self.first_epsilon + (self.last_epsilon - self.first_epsilon) * fallen

    def rate(self, iteration: int) -> float:
        """Return the learning rate of an iteration."""
        return self.learning_rate * (1 - 0.9 * iteration / self.iterations)
