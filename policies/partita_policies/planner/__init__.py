"""The policy `planner`: dual values of the jobs' work propose what starts, and plans decide.

Each choice is a set of jobs for one GPU, or to wait. Its gain is the dual value of the work per
second that it adds (`native/duals.h`). The choices with the largest gains are compared by
simulated plans (`native/plans.c`), as far as the work for that is bounded.
"""

from partita_policies.planner.policy import Planner, PlannerParameters

__all__ = ["Planner", "PlannerParameters"]
