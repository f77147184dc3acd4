"""What policies keep from one decision to the next, so that a decision costs what has changed.

A snapshot is immutable, and its jobs, profiles and GPUs are the same objects as in the last
snapshot unless they have changed. So whatever is derived from one of them is kept under its
identity, and derived again only from a new object. Nothing else of a snapshot is remembered:
a decision is the same as that of a policy that has seen no other snapshot.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from partita_policies.capacity import FreeCapacity
from partita_policies.types import Snapshot

__all__ = ["CapacityCache", "Interned", "Memo"]

Input = TypeVar("Input")
Result = TypeVar("Result")


class Memo(Generic[Input, Result]):
    """Values computed from immutable objects, kept as long as decisions use these objects.

    The key is the identity of the object, because hashing a job or a profile takes as long as the
    rest of a decision. The objects themselves are kept as well, so that no identity is reused.

    Parameters
    ----------
    compute
        Computes the value of an object from nothing but the object; it is never None.
    """

    def __init__(self, compute: Callable[[Input], Result]) -> None:
        self._compute = compute
        self._before: dict[int, Result] = {}
        self._now: dict[int, Result] = {}
        self._used_before: list[Input] = []
        self._used: list[Input] = []

    def begin(self) -> None:
        """Begin a decision and remove the entries that the last decision did not use."""
        self._before, self._now = self._now, {}
        self._used_before, self._used = self._used, []

    def of(self, one: Input) -> Result:
        """Return the value of an object, and compute it if it is missing."""
        place = id(one)
        known = self._now.get(place)
        if known is None:
            known = self._before.get(place)
            if known is None:
                known = self._compute(one)
            self._now[place] = known
            self._used.append(one)
        return known

    def of_all(self, objects: Sequence[Input]) -> list[Result]:
        """Return the values of many objects: as `of` of each, in a fraction of the time."""
        places = [*map(id, objects)]
        values = [*map(self._before.get, places)]
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            pairs = zip(objects, values, strict=True)
            known = [self.of(one) if value is None else value for one, value in pairs]
        self._now.update(zip(places, known, strict=True))
        self._used += objects
        return known


class Interned(Memo[Input, Result]):
    """Values that objects with equal keys share, kept as long as decisions use one of the objects.

    So what follows from a value is computed once, and values are compared by their identity.

    Parameters
    ----------
    key
        Returns the key of an object.
    compute
        Computes the value of the first object with a key.
    """

    def __init__(
        self, key: Callable[[Input], Hashable], compute: Callable[[Input], Result]
    ) -> None:
        of_key: WeakValueDictionary[Hashable, Result] = WeakValueDictionary()

        def find(one: Input) -> Result:
            of_one = key(one)
            found = of_key.get(of_one)
            if found is None:
                found = of_key[of_one] = compute(one)
            return found

        super().__init__(find)


class CapacityCache:
    """The free capacity in the last snapshot, from which that in the next one is derived.

    A decision has it for itself: one that hangs in another thread, or raises an error half-way,
    does not disturb the next, which starts from the snapshot alone.
    """

    def __init__(self) -> None:
        self._last: FreeCapacity | None = None

    @contextmanager
    def of(self, snapshot: Snapshot) -> Iterator[FreeCapacity]:
        """Lend the free capacity in a snapshot for one decision."""
        capacity, self._last = self._last, None
        if capacity is None or not capacity.follow(snapshot.gpus, snapshot.nodes):
            capacity = FreeCapacity(snapshot.gpus, snapshot.nodes)
        yield capacity
        self._last = capacity
