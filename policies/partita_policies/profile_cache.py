"""What policies make of profiles, kept from one decision to the next."""

from collections.abc import Callable
from typing import Generic, TypeVar

from partita_policies.types import Profile

__all__ = ["ProfileCache"]

Result = TypeVar("Result")


class ProfileCache(Generic[Result]):
    """What was made of each profile, as long as jobs have it.

    A profile never changes, and to digest thousands of them takes longer than all else in a
    decision. Kept by the profile's identity, and with it, for hashing them takes as long.

    Parameters
    ----------
    make
        Digests a profile.
    """

    def __init__(self, compute: Callable[[Profile], Result]) -> None:
        self._compute = compute
        self._before: dict[int, tuple[Profile, Result]] = {}
        self._now: dict[int, tuple[Profile, Result]] = {}

    def begin(self) -> None:
        """Begin a decision: what nobody asked for in the last one is forgotten."""
        self._before, self._now = self._now, {}

    def of(self, profile: Profile) -> Result:
        """Return what is made of a profile."""
        place = id(profile)
        known = self._now.get(place) or self._before.get(place)
        if known is None or known[0] is not profile:
            known = (profile, self._compute(profile))
        self._now[place] = known
        return known[1]
