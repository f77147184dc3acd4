"""Whom to end for a job of higher priority, and which GPUs to hold for one that waited."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partita.scheduling.endable import Endable
from partita.scheduling.preemption import victims_for
from partita.scheduling.reservations import Aging, fit_among, gpus_to_hold
from partita_policies import GPU, Job, RunningJob
from partita_policies.amounts import GPUAmounts
from partita_policies.capacity import FreeCapacity
from partita_policies.lasting import only_lasting
from support.strategies import GIB, gpus, jobs

JOB = Job("high", "team-a/high", "team-a", memory=20 * GIB, priority=5)


def running_job(
    name: str, memory: int, priority: int = 0, started: float = 0.0, **more: Any
) -> RunningJob:
    return RunningJob(name, memory * GIB, priority=priority, started=started, **more)


def gpu(*running: RunningJob, name: str = "gpu-0", **more: Any) -> GPU:
    fields = {"node": "node-1", "memory": 40 * GIB, "max_jobs": 16} | more
    return GPU(name, running=running, **fields)


def victims(job: Job, *there: GPU, **fields: Any) -> set[str] | None:
    found = victims_for(job, there, **fields)
    return None if found is None else {victim.job for victim in found[1]}


ROOM = GPUAmounts(80 * GIB, 32, 96)


class TestVictims:
    def test_the_youngest_of_the_lowest_goes(self):
        there = gpu(running_job("old", 20, started=10.0), running_job("young", 20, started=99.0))
        assert victims(JOB, there) == {"young"}

    def test_nobody_goes_without_need(self):
        """Greed would end the small one first, and then find that it was not enough."""
        there = gpu(running_job("small", 2, priority=0), running_job("large", 38, priority=1))
        assert victims(JOB, there) == {"large"}

    def test_the_gpu_where_the_least_is_lost_is_taken(self):
        one = gpu(running_job("a", 20), running_job("b", 20), name="gpu-0")
        other = gpu(
            running_job("c", 20, priority=-1), running_job("d", 20, priority=1), name="gpu-1"
        )
        assert victims(JOB, one, other) == {"c"}
        assert victims(JOB, one, other, spared={"gpu-1"}) == {"a"}

    def test_a_gpu_on_which_it_fits_costs_nothing(self):
        assert victims(JOB, gpu(running_job("a", 30)), gpu(name="gpu-1")) == set()

    def test_a_job_that_is_kept_is_not_ended(self):
        there = gpu(running_job("kept", 20), running_job("equal", 20, priority=5))
        assert victims(JOB, there) == {"kept"}
        assert victims(JOB, there, endable=Endable(kept={"kept"})) is None

    def test_several_gpus_are_found_on_one_node(self):
        job = replace(JOB, gpus=2, alone=True)
        far = [
            gpu(running_job(f"n{n}", 40, alone=True), name=f"gpu-{n}", node=f"n{n}") for n in (1, 2)
        ]
        assert victims(job, *far) is None
        near = [replace(g, node="node-1") for g in far]
        assert victims(job, *near) == {"n1", "n2"}

    def test_several_gpus_share_the_room_that_services_have(self):
        job = replace(JOB, gpus=2, alone=True, lasting=True)
        there = [gpu(running_job(f"n{n}", 40, alone=True), name=f"gpu-{n}") for n in (1, 2)]
        assert victims(job, *there, services_room=ROOM) == {"n1", "n2"}
        assert victims(job, *there, services_room=ROOM._replace(memory=79 * GIB)) is None
        services = [replace(g, running=(replace(g.running[0], lasting=True),)) for g in there]
        assert victims(job, *services, services_room=GPUAmounts()) == {"n1", "n2"}

    @settings(max_examples=60, deadline=None)
    @given(jobs("high"), st.lists(st.integers(0, 3), min_size=1, max_size=3), st.data())
    def test_what_is_chosen_helps_is_lower_and_is_needed(self, job, indexes, data):
        there = [data.draw(gpus(f"gpu-{n}")) for n in range(len(indexes))]
        found = victims_for(job, there)
        if found is None:
            return
        names, chosen = found
        assert all(victim.priority < job.priority for victim in chosen)
        gone = {victim.job for victim in chosen}

        def fits(without: set[str]) -> bool:
            left = [
                replace(g, running=tuple(b for b in g.running if b.job not in without))
                for g in there
            ]
            return FreeCapacity(left).why_not_together(job, names) is None

        assert fits(gone)
        assert not any(fits(gone - {victim}) for victim in gone)


class TestHolding:
    def held(self, job: Job, gpus: list[GPU]) -> tuple[str, ...] | None:
        return gpus_to_hold(job, FreeCapacity(gpus), gpus, FreeCapacity(map(only_lasting, gpus)))

    def test_the_gpu_with_the_least_still_to_come_is_held(self):
        there = [gpu(running_job("a", 38)), gpu(running_job("b", 25), name="gpu-1")]
        assert self.held(JOB, there) == ("gpu-1",)
        assert self.held(replace(JOB, alone=True), there) == ("gpu-1",)

    @pytest.mark.parametrize("change", [{"memory": 41 * GIB}, {"slots": 17}, {"clients": 49}])
    def test_none_is_held_for_a_job_that_it_can_never_take(self, change: dict[str, Any]):
        there = [gpu()]
        assert self.held(replace(JOB, **change), there) is None

    def test_none_is_held_behind_jobs_that_never_end(self):
        there = [gpu(running_job("service", 20, lasting=True))]
        assert self.held(replace(JOB, memory=20 * GIB), there) == ("gpu-0",)
        assert self.held(replace(JOB, memory=21 * GIB), there) is None
        assert self.held(replace(JOB, memory=GIB, alone=True), there) is None

    def test_several_are_held_on_one_node(self):
        there = [gpu(name=f"gpu-{n}", node=f"n{n % 2}") for n in range(3)]
        job = replace(JOB, gpus=2, alone=True)
        assert self.held(job, there) == ("gpu-0", "gpu-2")
        assert fit_among(job, FreeCapacity(there), there) == ("gpu-0", "gpu-2")
        assert fit_among(job, FreeCapacity(there), there[:2]) is None


class TestAging:
    def queue(self, *names: str) -> list[Job]:
        return [Job(name, name, "team-a", memory=GIB) for name in names]

    def test_only_who_stood_before_somebody_started_was_passed_over(self):
        aging = Aging()
        order = self.queue("a", "b", "c", "d")
        aging.note(order, {"c": ()})
        assert aging.bypasses == {"a": 1, "b": 1}
        aging.note(order, {})
        aging.note(order, {"d": (), "a": ()})
        assert aging.bypasses == {"b": 2, "c": 1}

    def test_the_first_job_of_a_namespace_is_passed_over_by_younger_ones_before_it(self):
        aging = Aging()
        here, there = gpu(name="here"), gpu(name="there", node="elsewhere")
        fields = {"memory": 8 * GIB, "submitted": 1.0}
        first, second = (Job(name, name, "holds-much", **fields) for name in ("first", "second"))
        picky = Job("picky", "picky", "picky", nodes=frozenset({"elsewhere"}), **fields)
        young = Job("young", "young", "holds-little", memory=GIB, submitted=2.0)
        order = [young, first, second, picky]
        aging.note(order, {"young": [here]})
        assert aging.bypasses == {"first": 1}
        aging.note(order, {"young": [there]})
        assert aging.bypasses == {"first": 2, "picky": 1}
        aging.note([replace(young, priority=1), *order[1:]], {"young": [here]})
        aging.note([replace(young, submitted=0.0), *order[1:]], {"young": [here]})
        assert aging.bypasses == {"first": 2, "picky": 1}

    def test_who_was_passed_over_too_often_comes_first_in_queue_order(self):
        aging = Aging()
        assert aging.aged(self.queue("a"), 0) == []
        aging.bypasses = {"a": 3, "b": 5, "c": 1}
        assert [j.id for j in aging.aged(self.queue("c", "b", "a"), 3)] == ["b", "a"]

    def test_namespaces_take_turns_and_a_turn_lasts_until_its_job_has_started(self):
        aging = Aging()
        first, second = self.queue("first", "second")
        other = replace(second, id="other", name="other", namespace="team-b", submitted=1.0)
        assert aging.in_turn([other, second, first]) == [first, second, other]
        aging.reserve(first)
        assert aging.in_turn([other, second, first]) == [first, other, second]

    def test_who_waits_no_longer_is_forgotten(self):
        aging = Aging()
        aging.bypasses = {"a": 3, "b": 5}
        aging.keep_only({"b", "c"})
        assert aging.bypasses == {"b": 5}
