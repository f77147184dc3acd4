"""The policy `lookahead`: a search for the plan with the least makespan.

`policy` searches among `plans`; `colocation` predicts which jobs should share a GPU.
"""

from partita_policies.lookahead.policy import Lookahead, LookaheadParameters

__all__ = ["Lookahead", "LookaheadParameters"]
