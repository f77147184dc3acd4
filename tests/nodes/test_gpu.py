"""The physics of one simulated GPU."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partita_testcluster.nodes.gpu import GIB, Ended, Mode, SimulatedGPU, Work

JOB = Work(key="a", duration=20.0, memory=(2 * GIB,), utilisation=(40.0,))

works = st.builds(
    Work,
    key=st.uuids().map(str),
    duration=st.floats(0.01, 1000),
    memory=st.lists(st.integers(0, 8 * GIB), min_size=1, max_size=4).map(tuple),
    utilisation=st.lists(st.floats(1, 100), min_size=1, max_size=4).map(tuple),
    memory_limit=st.none() | st.integers(GIB, 8 * GIB),
)
modes = st.sampled_from(["MPS", "TimeSlicing", "Exclusive"])


def run_out(gpu: SimulatedGPU) -> dict[str, Ended]:
    """Let the GPU run until nothing is left on it."""
    ended: list[Ended] = []
    while (due := gpu.next_event()) < math.inf:
        ended += gpu.advance(due)
    assert not gpu.jobs
    return {end.key: end for end in ended}


def start_all(gpu: SimulatedGPU, jobs: list[Work]) -> dict[str, Ended]:
    return {job.key: end for job in jobs if (end := gpu.start(job)) is not None}


@given(work=works, mode=modes, begin=st.floats(0, 1e6))
def test_a_job_alone_takes_its_duration(work: Work, mode: Mode, begin: float) -> None:
    gpu = SimulatedGPU(8 * GIB, mode, begin)
    gpu.start(replace(work, memory_limit=None))
    end = run_out(gpu)[work.key]
    assert end.time - begin == pytest.approx(work.duration, rel=1e-6, abs=1e-6)
    assert end.peak == max(work.memory)
    assert not end.error


@given(first=st.floats(1, 50), second=st.floats(1, 50))
def test_jobs_that_ask_for_less_than_the_gpu_together_do_not_slow_each_other(
    first: float, second: float
) -> None:
    gpu = SimulatedGPU(8 * GIB, "MPS")
    start_all(
        gpu, [replace(JOB, utilisation=(first,)), replace(JOB, key="b", utilisation=(second,))]
    )
    assert {end.time for end in run_out(gpu).values()} == {20.0}


def test_demand_above_the_gpu_slows_all_by_the_same_factor() -> None:
    gpu = SimulatedGPU(8 * GIB, "MPS")
    start_all(gpu, [replace(JOB, utilisation=(90.0,)), replace(JOB, key="b", utilisation=(60.0,))])
    assert gpu.utilisation == pytest.approx(100)
    times = [end.time for end in run_out(gpu).values()]
    assert times == pytest.approx([30.0, 30.0])


def test_a_job_runs_at_full_speed_again_when_its_neighbour_has_ended() -> None:
    gpu = SimulatedGPU(8 * GIB, "MPS")
    start_all(
        gpu,
        [
            replace(JOB, utilisation=(100.0,), duration=10.0),
            replace(JOB, key="b", utilisation=(100.0,), duration=20.0),
        ],
    )
    ended = run_out(gpu)
    assert ended["a"].time == pytest.approx(20.0)
    assert ended["b"].time == pytest.approx(30.0)


def test_time_slicing_divides_the_gpu_between_those_with_a_demand() -> None:
    gpu = SimulatedGPU(8 * GIB, "TimeSlicing")
    start_all(gpu, [JOB, replace(JOB, key="b"), replace(JOB, key="idle", utilisation=(0.0,))])
    assert gpu.utilisation == pytest.approx(40)
    ended = run_out(gpu)
    assert ended["idle"].time == pytest.approx(20.0)
    assert ended["a"].time == ended["b"].time == pytest.approx(40.0)


def test_memory_follows_its_curve_and_the_peak_is_kept() -> None:
    gpu = SimulatedGPU(8 * GIB, "MPS")
    gpu.start(replace(JOB, memory=(GIB, 6 * GIB, 2 * GIB, GIB), utilisation=(10.0, 50.0)))
    seen = []
    for time in (0.0, 5.0, 10.0, 15.0):
        gpu.advance(time)
        seen.append((gpu.used // GIB, gpu.jobs["a"].peak // GIB, gpu.utilisation))
    assert seen == [(1, 1, 10.0), (6, 6, 10.0), (2, 6, 50.0), (1, 6, 50.0)]


def test_only_the_job_above_its_limit_ends() -> None:
    gpu = SimulatedGPU(40 * GIB, "MPS")
    greedy = replace(JOB, key="greedy", memory=(GIB, 6 * GIB), memory_limit=4 * GIB)
    start_all(gpu, [JOB, greedy])
    ended = run_out(gpu)
    assert ended["greedy"].time == pytest.approx(10.0)
    assert ended["greedy"].error == (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 5.00 GiB. "
        "GPU 0 has a total capacity of 4.00 GiB of which 3.00 GiB is free."
    )
    assert ended["greedy"].peak == GIB
    assert ended["a"] == Ended("a", 20.0, 2 * GIB)


def test_the_job_that_asks_last_ends_when_the_gpu_is_full() -> None:
    gpu = SimulatedGPU(8 * GIB, "MPS")
    late = replace(JOB, key="late", memory=(GIB, 7 * GIB))
    early = replace(JOB, key="early", memory=(4 * GIB,))
    assert start_all(gpu, [late, early]) == {}
    ended = run_out(gpu)
    assert "CUDA out of memory" in ended["late"].error
    assert not ended["early"].error


def test_a_job_can_be_refused_at_its_start() -> None:
    gpu = SimulatedGPU(GIB, "MPS")
    end = gpu.start(JOB)
    assert end is not None
    assert "total capacity of 1.00 GiB" in end.error
    assert not gpu.jobs


def test_a_job_goes_on_where_it_was() -> None:
    gpu = SimulatedGPU(8 * GIB, "MPS", 100.0)
    gpu.start(replace(JOB, memory=(GIB, 3 * GIB)), done=15.0)
    assert gpu.used == 3 * GIB
    assert run_out(gpu)["a"].time == pytest.approx(105.0)


def test_a_job_that_was_done_already_ends_at_once() -> None:
    gpu = SimulatedGPU(8 * GIB, "MPS", 100.0)
    gpu.start(JOB, done=1000.0)
    assert gpu.next_event() == 100.0
    assert run_out(gpu)["a"].time == 100.0


def test_a_stopped_job_leaves_at_once() -> None:
    gpu = SimulatedGPU(8 * GIB, "MPS")
    start_all(
        gpu, [replace(JOB, utilisation=(100.0,)), replace(JOB, key="b", utilisation=(100.0,))]
    )
    gpu.advance(10.0)
    assert gpu.stop("b", "killed") == Ended("b", 10.0, 2 * GIB, "killed")
    assert run_out(gpu)["a"].time == pytest.approx(25.0)


def test_two_jobs_of_one_key_are_refused() -> None:
    gpu = SimulatedGPU(8 * GIB, "MPS")
    gpu.start(JOB)
    with pytest.raises(ValueError, match="runs on this GPU already"):
        gpu.start(JOB)


@given(jobs=st.lists(works, min_size=1, max_size=6, unique_by=lambda w: w.key), mode=modes)
def test_work_is_conserved(jobs: list[Work], mode: Mode) -> None:
    """What the GPU was used, over time, is what its jobs had to do."""
    gpu = SimulatedGPU(100 * GIB, mode)
    jobs = [replace(job, memory_limit=None) for job in jobs]
    start_all(gpu, jobs)
    if mode == "Exclusive":
        gpu = SimulatedGPU(100 * GIB, mode)
        gpu.start(jobs[0])
        jobs = jobs[:1]
    used = 0.0
    while (due := gpu.next_event()) < math.inf:
        used += gpu.utilisation * max(0.0, due - gpu.now)
        gpu.advance(due)
    wanted = sum(j.duration * sum(j.utilisation) / len(j.utilisation) for j in jobs)
    assert used == pytest.approx(wanted, rel=1e-6, abs=1e-6)


@given(jobs=st.lists(works, min_size=1, max_size=6, unique_by=lambda w: w.key), mode=modes)
def test_memory_never_exceeds_the_gpu_nor_a_jobs_limit(jobs: list[Work], mode: Mode) -> None:
    gpu = SimulatedGPU(8 * GIB, mode)
    limits = {job.key: job.memory_limit for job in jobs}
    ended = start_all(gpu, jobs)
    while True:
        assert gpu.used <= gpu.memory
        for key, job in gpu.jobs.items():
            assert job.memory <= (limits[key] or gpu.memory)
        if (due := gpu.next_event()) == math.inf:
            break
        ended |= {end.key: end for end in gpu.advance(due)}
    assert ended.keys() == {job.key for job in jobs}


@given(
    jobs=st.lists(works, min_size=1, max_size=4, unique_by=lambda w: w.key),
    steps=st.lists(st.floats(0, 100), max_size=20),
    mode=modes,
)
def test_time_in_steps_gives_the_same_ends_as_time_at_once(
    jobs: list[Work], steps: list[float], mode: Mode
) -> None:
    jobs = [replace(job, memory=(GIB,), memory_limit=None) for job in jobs]
    stepwise, at_once = SimulatedGPU(100 * GIB, mode), SimulatedGPU(100 * GIB, mode)
    start_all(stepwise, jobs)
    start_all(at_once, jobs)
    ended: list[Ended] = []
    for to in sorted(steps):
        ended += stepwise.advance(to)
        assert stepwise.now == pytest.approx(max(to, stepwise.now))
        assert all(end.time <= to for end in ended)
    ended += stepwise.advance(1e7)
    together = {end.key: end.time for end in at_once.advance(1e7)}
    assert {end.key: end.time for end in ended} == pytest.approx(together, rel=1e-6)


def test_time_does_not_run_backwards() -> None:
    gpu = SimulatedGPU(8 * GIB, "MPS", 50.0)
    gpu.start(JOB)
    assert gpu.advance(10.0) == []
    assert gpu.now == 50.0
