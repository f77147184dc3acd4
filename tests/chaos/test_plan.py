"""The plan: all of it from the seed, and nothing in it that could not come to its right end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chaos.chaos_cluster import job_body
from chaos.faults import Faults
from chaos.plan import FAULTS, JOBS, KILLS, PARTITIONS, make_plan
from partita.models import SharedGPUJob

counts = st.integers(0, 60)


@given(st.integers(), counts, counts, st.integers(1, 40))
def test_a_seed_gives_as_many_kills_and_faults_as_were_asked_for(seed, kills, faults, per_round):
    rounds = make_plan(seed, kills, faults, per_round)
    steps = [step for planned in rounds for step in planned.steps]
    kinds = [step.action.kind for step in steps]
    assert sum(kind in KILLS for kind in kinds) == kills
    assert sum(kind in FAULTS for kind in kinds) == faults
    assert [step.number for step in steps] == list(range(1, kills + faults + 1))
    assert all(0 < len(planned.steps) <= per_round for planned in rounds)


@given(st.integers(), counts, counts)
def test_the_same_seed_gives_the_same_plan(seed, kills, faults):
    assert make_plan(seed, kills, faults, 60) == make_plan(seed, kills, faults, 60)


def test_another_seed_gives_another_plan():
    assert make_plan(1, 20, 20, 60) != make_plan(2, 20, 20, 60)


@given(st.integers())
def test_each_job_is_one_that_the_api_server_takes_and_that_can_reach_its_end(seed):
    jobs = [job for planned in make_plan(seed, 20, 20, 60) for job in planned.jobs]
    assert len({(job.team, job.name) for job in jobs}) == len(jobs)
    for job in jobs:
        body = job_body(job)
        SharedGPUJob.parse({**body, "metadata": {**body["metadata"], "uid": "u"}})
        partition = PARTITIONS[job.partition]
        assert job.gpus == 1 or (partition.mode == "Exclusive" and job.gpus <= partition.gpus)
        assert (job.end == "Queued") == (job.kind == "too-large")
        assert (job.failures > 0) == (job.kind == "fails")
        assert bool(job.not_started) == bool(job.stuck_by) == (job.kind == "stuck")


def test_everything_comes_up_in_a_long_run():
    rounds = make_plan(1, 200, 1000, 60)
    steps = [step for planned in rounds for step in planned.steps]
    assert {step.action.kind for step in steps} == KILLS.keys() | FAULTS.keys()
    assert {job.kind for planned in rounds for job in planned.jobs} == JOBS.keys()


def test_there_is_somebody_to_carry_out_each_fault():
    by_name = {"cut", "delay", "storm"}
    for kind in FAULTS:
        known = kind.partition("-")[0] in by_name or hasattr(Faults, f"_{kind.replace('-', '_')}")
        assert known, kind
