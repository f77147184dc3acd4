"""The policy `dqn`: a network chooses which waiting jobs start where, and plans check its choices.

Each choice is a set of jobs for one GPU, or to wait. Its score is the gain in the dual value of the
work per second (`native/prices.h`) and a small network's correction of it, which is trained by
policy gradient (`partita_research.training`). The choices with the best scores are compared by
simulated plans (`native/plans.c`), as far as the work for that is bounded.

The name and the questions asked of the network come from J. Oh, "A Job Placement Using
Reinforcement Learning in GPU Virtualization Environment" (2019), section IV: which combination of
waiting jobs to add to a GPU, from the profiles of all. Its deep Q-learning did not learn values
here (`docs/policies.md`).
"""

from partita_policies.dqn.network import ModelError, ModelOutputError, Network
from partita_policies.dqn.policy import DQN, DQNParameters

__all__ = ["DQN", "DQNParameters", "ModelError", "ModelOutputError", "Network"]
