"""A Gymnasium environment over the simulator, in which other libraries train policies.

`partita_research.environment.scheduling` has the environment. It needs `gymnasium`, which the extra
`train` installs, and registers `partita/Scheduling-v0`. `ChoicePolicy` lets what was trained decide
in a cluster or in a simulation, and needs nothing more.
"""

from partita_research.environment.choices import ChoicePolicy, Choices

__all__ = ["ChoicePolicy", "Choices"]
