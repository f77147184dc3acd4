"""A Gymnasium environment over the simulator, in which other libraries train policies.

`SchedulingEnv` needs `gymnasium`, which the extra `train` installs. `ChoicePolicy` lets what was
trained decide in a cluster or in a simulation, and needs nothing more.
"""

from partita_research.environment.choices import ChoicePolicy, Choices
from partita_research.environment.scheduling import Draw, SchedulingEnv, synthetic_workload

__all__ = ["ChoicePolicy", "Choices", "Draw", "SchedulingEnv", "synthetic_workload"]
