"""Waiting jobs grouped by what they ask for.

A queue of thousands of jobs holds far fewer classes, and jobs of one class fit alike, so a
policy that weighs jobs against each other weighs their classes.
"""

import heapq
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import replace
from operator import attrgetter
from typing import Generic, TypeVar

from partita_policies.capacity import FreeCapacity
from partita_policies.segment_tree import NONE, SegmentTree
from partita_policies.types import Job

__all__ = ["EquivalenceClass", "EquivalenceClasses"]

Trait = TypeVar("Trait", bound=Hashable)

_Shape = tuple[int, int, bool, int, tuple[str, ...], frozenset[str]]
_FORM = attrgetter("slots", "clients", "alone", "gpus", "products", "nodes")
_AMOUNTS = attrgetter("memory", "cpu", "host_memory", "host_storage", "priority")
_ORDER = attrgetter("order")


class EquivalenceClass(Generic[Trait]):
    """Jobs that ask for the same."""

    __slots__ = ("form", "order", "place", "trait", "waiting")

    def __init__(self, order: int, jobs: list[Job], trait: Trait) -> None:
        self.order = order
        """Its place among the classes: that of its first job in the queue."""
        self.trait = trait
        self.waiting = jobs
        """The next one is at the end."""
        self.form: _Form[Trait]
        self.place: int


class _Form(Generic[Trait]):
    """Classes alike in all but memory, with an index over that of the GPU."""

    def __init__(self, classes: list[EquivalenceClass[Trait]]) -> None:
        self.sample = replace(classes[0].waiting[-1], cpu=0, host_memory=0, host_storage=0)
        self.classes = classes
        memory = [job_class.waiting[-1].memory for job_class in classes]
        self.largest = max(memory)
        self.spared = SegmentTree([self.largest - amount for amount in memory])
        for place, job_class in enumerate(classes):
            job_class.form, job_class.place = self, place

    def fitting(self, capacity: FreeCapacity, gpu_id: str) -> Iterator[EquivalenceClass[Trait]]:
        reach, free = capacity.reach(self.sample, gpu_id), capacity[gpu_id]
        if reach == NONE:
            return
        classes, largest, first = self.classes, self.largest, self.spared.first
        place = first(largest - reach if reach < largest else 0)
        while place != NONE:
            yield classes[place]
            most = min(reach, free.memory)
            place = first(largest - most if most < largest else 0, place + 1)


class EquivalenceClasses(Generic[Trait]):
    """The classes of the jobs that wait; iterates over them in order.

    Parameters
    ----------
    jobs
        In the order in which they are to be considered.
    trait
        What, beside room and priority, tells two classes apart for the policy.
    """

    def __init__(self, jobs: Iterable[Job], trait: Callable[[Job], Trait]) -> None:
        groups: dict[tuple[_Shape, tuple[int, ...], Trait], list[Job]] = {}
        for job in jobs:
            key = (_FORM(job), _AMOUNTS(job), trait(job))
            members = groups.get(key)
            if members is None:
                groups[key] = [job]
            else:
                members.append(job)
        forms: dict[_Shape, list[EquivalenceClass[Trait]]] = {}
        self._classes: list[EquivalenceClass[Trait]] = []
        for order, ((form, *_, of_jobs), members) in enumerate(groups.items()):
            members.reverse()
            job_class = EquivalenceClass(order, members, of_jobs)
            self._classes.append(job_class)
            forms.setdefault(form, []).append(job_class)
        self._forms = [_Form(members) for members in forms.values()]
        self._waiting = len(self._classes)

    def __bool__(self) -> bool:
        return self._waiting > 0

    def __iter__(self) -> Iterator[EquivalenceClass[Trait]]:
        return iter(self._classes)

    def fitting(self, capacity: FreeCapacity, gpu_id: str) -> Iterator[EquivalenceClass[Trait]]:
        """Yield, in order, the classes whose jobs may have a GPU.

        When room is taken there meanwhile, those that no longer have memory are left out; other
        limits are then for the caller to check, and so are the node's own resources at all times.
        """
        if len(self._forms) == 1:
            return self._forms[0].fitting(capacity, gpu_id)
        return heapq.merge(*(form.fitting(capacity, gpu_id) for form in self._forms), key=_ORDER)

    def start(self, job_class: EquivalenceClass[Trait]) -> None:
        """Take the next job of a class out of the queue."""
        job_class.waiting.pop()
        if not job_class.waiting:
            self._waiting -= 1
            job_class.form.spared.set(job_class.place, NONE)
