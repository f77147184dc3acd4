"""The policy `lookahead`: a search for the plan with the least makespan.

`policy` searches, `plans` are what it searches among, `company` is who goes well together in one.
"""

from partita_policies.lookahead.policy import Lookahead, LookaheadParameters

__all__ = ["Lookahead", "LookaheadParameters"]
