"""Waiting jobs grouped by their requests.

A queue of thousands of jobs has far fewer classes. All jobs of a class fit the same GPUs, so a
policy that compares jobs only needs to compare classes.
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
    """Jobs with the same request."""

    __slots__ = ("form", "order", "place", "trait", "waiting")

    def __init__(self, order: int, jobs: list[Job], trait: Trait) -> None:
        self.order = order
        """Index among the classes, which are ordered by their first jobs in the queue."""
        self.trait = trait
        self.waiting = jobs
        """The next job is last."""
        self.form: _Form[Trait]
        self.place: int


class _Form(Generic[Trait]):
    """Classes that differ only in amounts and trait, with an index of their GPU memory."""

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
    """The classes of the waiting jobs; iterates over them in order.

    Parameters
    ----------
    jobs
        The jobs in the order in which to consider them.
    trait
        Returns a property by which the policy distinguishes classes, besides request and priority.
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
        """Yield, in order, the classes whose jobs fit a GPU.

        If the GPU's free capacity decreases meanwhile, classes that no longer fit its memory are
        skipped. The caller must then check the other limits, and always the node's own resources.
        """
        if len(self._forms) == 1:
            return self._forms[0].fitting(capacity, gpu_id)
        return heapq.merge(*(form.fitting(capacity, gpu_id) for form in self._forms), key=_ORDER)

    def start(self, job_class: EquivalenceClass[Trait]) -> None:
        """Remove the next job of a class from the queue."""
        job_class.waiting.pop()
        if not job_class.waiting:
            self._waiting -= 1
            job_class.form.spared.set(job_class.place, NONE)
