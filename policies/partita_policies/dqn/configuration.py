"""Everything that a training depends on, but for the workloads: written into what it makes."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Training"]


class Training(BaseModel):
    """Settings of one training.

    Notes
    -----
    Starting points were CleanRL's `dqn.py` and the papers named in `learning`; what differs was
    chosen on the validation workloads, which no reported figure is measured on.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    algorithm: Literal["dqn", "study"] = "dqn"
    seed: int = 0
    iterations: int = Field(default=96, ge=1)
    """Times that workloads are run and the network is then updated."""
    episodes: int = Field(default=16, ge=1)
    """Workloads run in an iteration, side by side."""
    updates: int = Field(default=80, ge=1)
    """Gradient steps in an iteration."""
    batch: int = Field(default=64, ge=1)
    replay: int = Field(default=40_000, ge=1)
    """Decisions kept to learn from."""
    learning_rate: float = Field(default=1e-3, gt=0)
    """At first; falls linearly to a tenth."""
    gamma: float = Field(default=1.0, gt=0, le=1)
    """Discount for each mean duration of a job."""
    steps: int = Field(default=1, ge=1)
    """Decisions of which the rewards are added up before the network's estimate follows."""
    polyak: float = Field(default=0.005, gt=0, le=1)
    """Share of the network that goes into the target network at each step."""
    clip: float = Field(default=5.0, gt=0)
    """Bound on the norm of the gradient."""
    first_epsilon: float = Field(default=0.6, ge=0, le=1)
    last_epsilon: float = Field(default=0.25, ge=0, le=1)
    """Share of random actions, at first and from `exploration` on. It stays large: what would come
    of the other choices is forgotten where they are no longer made."""
    exploration: float = Field(default=1.0, gt=0, le=1)
    """Share of the iterations in which epsilon falls."""
    prior: float = Field(default=2.0, ge=0)
    """What it adds to an estimate, when combinations are compared, that what gets done in a second
    is worth a second (`prices`): estimates err more than combinations differ, and among those that
    seem alike the one that loses no time now is the better bet."""
    hidden: int = Field(default=48, ge=1)
    """Width of the network's layers."""
    window: int = Field(default=6, ge=1, le=8)
    """Kinds of jobs offered at a time; it may be another when the network is used."""
    double: bool = True
    dueling: bool = True
    mask: bool = True
    shared: bool = True
    """Whether one scorer serves all combinations; otherwise each has its own output."""
    validation: int = Field(default=80, ge=1)
    """Workloads, never trained on, on which the network to keep is chosen."""
    validate_every: int = Field(default=12, ge=1)
    """Iterations between two points of the learning curve."""

    def epsilon(self, iteration: int) -> float:
        """Return the share of random actions of an iteration."""
        fallen = min(iteration / (self.exploration * self.iterations), 1.0)
        return self.first_epsilon + (self.last_epsilon - self.first_epsilon) * fallen

    def rate(self, iteration: int) -> float:
        """Return the learning rate of an iteration."""
        return self.learning_rate * (1 - 0.9 * iteration / self.iterations)
