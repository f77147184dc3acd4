"""Lasting jobs: which GPU they get, and how policies start other jobs beside them."""

from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import entry_points

import pytest
from hypothesis import given

from partita_policies import (
    GPU,
    CoRun,
    FreeCapacity,
    Job,
    Profile,
    RunningJob,
    Sharing,
    Snapshot,
    Step,
    complaints_about,
    create,
)
from partita_policies.amounts import GPUAmounts, capacity_of, held_by
from partita_policies.forecast import typical_duration
from partita_policies.lasting import best_gpu, only_lasting
from support.strategies import GIB, snapshots

POLICIES = sorted(entry.name for entry in entry_points(group="partita.policies"))


def profile(name: str, busy: float, gib: float = 1.0) -> Profile:
    return Profile(name, 100.0, (Step(busy, int(gib * GIB)),) * 4)


BUSY, IDLE = profile("busy", 95.0), profile("idle", 2.0)


def gpu(name: str, *running: RunningJob) -> GPU:
    return GPU(name, "node-1", 10 * GIB, 8, running=running)


def running(name: str, gib: float, used: Profile, *, lasting: bool = False) -> RunningJob:
    return RunningJob(name, int(gib * GIB), profile=used, lasting=lasting)


def job(name: str, gib: float, used: Profile | None = None, **fields: object) -> Job:
    duration = used and used.duration
    return Job(name, name, "n", int(gib * GIB), profile=used, duration=duration, **fields)


def choice(wanted: Job, gpus: Sequence[GPU]) -> str | None:
    return best_gpu(wanted, FreeCapacity(gpus), gpus, Sharing.MPS)


class TestBestGPU:
    def test_a_fuller_gpu_is_chosen_among_equally_fast_ones(self):
        gpus = [
            gpu("empty"),
            gpu("half", running("a", 5, IDLE)),
            gpu("some", running("b", 2, IDLE)),
        ]
        assert choice(job("service", 2, IDLE), gpus) == "half"

    def test_a_gpu_on_which_jobs_slow_each_other_down_is_avoided(self):
        gpus = [gpu("empty"), gpu("busy", running("a", 5, BUSY))]
        assert choice(job("service", 2, BUSY), gpus) == "empty"

    def test_a_gpu_beside_whose_jobs_it_has_been_slow_is_avoided(self):
        gpus = [gpu("empty"), gpu("half", running("a", 5, IDLE))]
        slowed = replace(IDLE, application="slowed", co_runs=(CoRun("idle", 1.8, 9.0),))
        assert choice(job("service", 2, replace(slowed, co_runs=())), gpus) == "half"
        assert choice(job("service", 2, slowed), gpus) == "empty"
        turns = best_gpu(job("service", 2, slowed), FreeCapacity(gpus), gpus, Sharing.TIME_SLICING)
        assert turns == "half", "what was seen under MPS says nothing about turns"

    @given(snapshots())
    def test_the_job_fits_the_chosen_gpu(self, snapshot: Snapshot):
        capacity = FreeCapacity(snapshot.gpus, snapshot.nodes)
        for waiting in snapshot.jobs:
            chosen = best_gpu(waiting, capacity, snapshot.gpus, snapshot.sharing)
            fits = [g.id for g in snapshot.gpus if capacity.why_not(waiting, g.id) is None]
            assert chosen in fits if fits else chosen is None


class TestBesideServices:
    def test_a_job_that_shares_with_no_other_has_what_services_leave(self):
        service = RunningJob("s", 4 * GIB, slots=7, clients=47, lasting=True)
        gpus = gpu("shared", service), gpu("taken", RunningJob("a", 0, alone=True, lasting=True))
        jobs = job("large", 7), job("wide", 1, slots=2), job("many", 1, clients=2), job("fits", 6)
        answer = create("sjf", {"exclusive": True}).decide(Snapshot("p", 0.0, jobs, gpus))
        assert [(one.job, *one.gpus) for one in answer] == [("fits", "shared")]

    def test_the_memory_of_services_is_counted(self):
        gpus = [
            gpu("shared", running("s", 4, IDLE, lasting=True), running("o", 1, IDLE)),
            gpu("taken", RunningJob("a", 0, alone=True, lasting=True)),
        ]
        assert held_by(gpus, lasting=True) == GPUAmounts(14 * GIB, 1 + 8, 1 + 48)
        assert capacity_of(gpus).percent(70).memory == 14 * GIB
        assert [one.job for g in map(only_lasting, gpus) for one in g.running] == ["s", "a"]


def test_a_queue_without_backfill_does_not_wait_for_what_never_ends():
    there = gpu("g", running("service", 5, IDLE, lasting=True))
    snapshot = Snapshot("p", 0.0, (job("large", 8), job("small", 2)), (there,))
    answer = create("fifo", {"backfill": False}).decide(snapshot)
    assert [placement.job for placement in answer] == ["small"]


@pytest.mark.parametrize("name", POLICIES)
class TestPolicies:
    def decide(self, name: str, jobs: list[Job], *gpus: GPU) -> dict[str, str]:
        snapshot = Snapshot("p", 0.0, tuple(jobs), gpus)
        answer = create(name).decide(snapshot)
        assert list(complaints_about(snapshot, answer)) == []
        return {placement.job: placement.gpus[0] for placement in answer}

    def test_a_job_starts_beside_a_service_that_keeps_the_gpu_busy(self, name: str):
        """It would wait for ever for a GPU without it."""
        there = gpu("g", running("service", 4, BUSY, lasting=True))
        assert self.decide(name, [job("batch", 3, BUSY)], there) == {"batch": "g"}

    def test_a_job_that_must_be_alone_gets_a_gpu_without_services(self, name: str):
        shared = gpu("shared", running("service", 1, IDLE, lasting=True))
        alone = job("alone", 2, alone=True)
        assert self.decide(name, [alone], shared) == {}
        assert self.decide(name, [alone], shared, gpu("idle")) == {"alone": "idle"}

    def test_a_job_too_large_beside_a_service_does_not_hold_up_others(self, name: str):
        there = gpu("g", running("service", 5, IDLE, lasting=True))
        assert "small" in self.decide(name, [job("large", 8, IDLE), job("small", 2, IDLE)], there)


def test_the_duration_of_a_service_is_not_typical():
    old = Profile("old", 9e9, BUSY.steps)
    service = RunningJob("service", GIB, profile=old, lasting=True)
    snapshot = Snapshot("p", 0.0, (job("batch", 1, profile("x", 5.0)),), (gpu("g", service),))
    assert typical_duration(snapshot) == 100.0
