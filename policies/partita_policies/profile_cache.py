"""A cache of values that policies compute from profiles, kept between decisions."""

from collections.abc import Callable
from typing import Generic, TypeVar

from partita_policies.types import Profile

__all__ = ["ProfileCache"]

Result = TypeVar("Result")


class ProfileCache(Generic[Result]):
    """Values computed from profiles, kept as long as jobs use the profiles.

    Profiles are immutable. Processing thousands of them takes longer than the rest of a decision.
    The key is the identity of the profile, because hashing is as slow. The entry includes the
    profile itself, so that its identity is not reused.

    Parameters
    ----------
    compute
        Computes the value of a profile.
    """

    def __init__(self, compute: Callable[[Profile], Result]) -> None:
        self._compute = compute
        self._before: dict[int, tuple[Profile, Result]] = {}
        self._now: dict[int, tuple[Profile, Result]] = {}

    def begin(self) -> None:
        """Begin a decision and remove the entries that the last decision did not use."""
        self._before, self._now = self._now, {}

    def of(self, profile: Profile) -> Result:
        """Return the value of a profile, and compute it if it is missing."""
        place = id(profile)
        known = self._now.get(place) or self._before.get(place)
        if known is None or known[0] is not profile:
            known = (profile, self._compute(profile))
        self._now[place] = known
        return known[1]
