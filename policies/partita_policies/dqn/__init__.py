"""The policy `dqn`: the planner with a small network, trained by policy gradient.

The network corrects the gain of each choice of `partita_policies.planner`
(`partita_research.training`). The name and the questions asked of the network come from J. Oh, "A
Job Placement Using Reinforcement Learning in GPU Virtualization Environment" (2019), section IV:
which combination of waiting jobs to add to a GPU, from the profiles of all. It has no Q-values.
"""

from partita_policies.dqn.policy import DQN, DQNParameters

__all__ = ["DQN", "DQNParameters"]
