"""The progress and the memory of jobs on one simulated GPU."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partita_policies.interference import TYPICAL_CACHE
from partita_policies.simulator.engine import Simulation
from partita_policies.simulator.results import SimulatedOutcome
from partita_policies.simulator.tasks import Application, Task
from partita_policies.types import GPU, Job, Placement, Sharing, Step
from partita_testcluster.nodes.gpu import GIB, Ended, SimulatedGPU, Work

JOB = Work(key="a", duration=20.0, memory=(2 * GIB,), utilisation=(40.0,))

works = st.builds(
    Work,
    key=st.uuids().map(str),
    duration=st.floats(0.01, 1000),
    memory=st.lists(st.integers(0, 8 * GIB), min_size=1, max_size=4).map(tuple),
    utilisation=st.lists(st.floats(1, 100), min_size=1, max_size=4).map(tuple),
    memory_limit=st.none() | st.integers(GIB, 8 * GIB),
)
modes = st.sampled_from(Sharing)


def run_out(gpu: SimulatedGPU) -> dict[str, Ended]:
    """Let the GPU run until nothing is left on it."""
    ended: list[Ended] = []
    while (due := gpu.next_event()) < math.inf:
        ended += gpu.advance(due)
    assert not gpu.jobs
    return {end.key: end for end in ended}


def start_all(gpu: SimulatedGPU, jobs: list[Work]) -> dict[str, Ended]:
    return {end.key: end for job in jobs for end in gpu.start(job)}


def test_the_thread_percentage_slows_a_job_that_needs_more() -> None:
    gpu = SimulatedGPU(8 * GIB, Sharing.MPS)
    gpu.start(replace(JOB, utilisation=(80.0,), thread_percent=40))
    assert run_out(gpu)["a"].time == pytest.approx(40.0)


def simulated(
    jobs: list[Work], sharing: Sharing, memory: int = 40 * GIB
) -> dict[str, tuple[bool, float]]:
    """Run jobs that start together in the research simulator: by job, success and time."""
    gpu = GPU("g", "n", memory, max_jobs=16, pcie_bandwidth=1)
    tasks = []
    for work in jobs:
        count = math.lcm(len(work.memory), len(work.utilisation))
        steps = tuple(
            Step(
                gpu=work.utilisation[i * len(work.utilisation) // count],
                memory=work.memory[i * len(work.memory) // count],
                core=0.6 * work.utilisation[i * len(work.utilisation) // count],
            )
            for i in range(count)
        )
        truth = Application(work.key, work.duration, steps, TYPICAL_CACHE)
        job = Job(work.key, work.key, "t", work.memory_limit or 1, alone=len(jobs) == 1)
        tasks.append(Task(job, truth))
    simulation = Simulation(tasks, [gpu], sharing=sharing)
    assert simulation.next_decision() is not None
    simulation.apply([Placement(work.key, ("g",)) for work in jobs])
    while simulation.next_decision() is not None:
        pass  # what ran out of memory is not started again
    found = {}
    for attempt in simulation.result().attempts:
        found[attempt.job] = (attempt.outcome is SimulatedOutcome.FINISHED, attempt.end)
    return found


@given(
    jobs=st.lists(works, min_size=1, max_size=5, unique_by=lambda w: w.key),
    mode=st.sampled_from([Sharing.MPS, Sharing.TIME_SLICING]),
)
def test_jobs_end_when_and_as_they_do_in_the_simulator(jobs: list[Work], mode: Sharing) -> None:
    limited = mode is Sharing.MPS and len(jobs) > 1
    jobs = [replace(w, memory_limit=(w.memory_limit or 8 * GIB) if limited else None) for w in jobs]
    gpu = SimulatedGPU(40 * GIB, mode)
    ended = start_all(gpu, jobs) | run_out(gpu)
    expected = simulated(jobs, mode)
    assert {key: not end.error for key, end in ended.items()} == {
        key: finished for key, (finished, _) in expected.items()
    }
    assert {key: end.time for key, end in ended.items()} == pytest.approx(
        {key: time for key, (_, time) in expected.items()}, rel=1e-6, abs=1e-4
    )


@pytest.mark.parametrize(
    ("sizes", "refused"), [((8, 8, 4), {"c"}), ((8, 10, 2), {"b"}), ((17, 8, 8), {"a"})]
)
def test_without_limits_a_full_gpu_refuses_the_same_jobs_as_in_the_simulator(
    sizes: tuple[int, ...], refused: set[str]
) -> None:
    jobs = [
        replace(JOB, key=key, memory=(0, size * GIB), duration=20.0 + i)
        for i, (key, size) in enumerate(zip("abc", sizes, strict=True))
    ]
    gpu = SimulatedGPU(16 * GIB, Sharing.TIME_SLICING)
    ended = start_all(gpu, jobs) | run_out(gpu)
    assert {key for key, end in ended.items() if end.error} == refused
    found = simulated(jobs, Sharing.TIME_SLICING, 16 * GIB)
    assert {key for key, (finished, _) in found.items() if not finished} == refused


def test_memory_follows_its_curve_and_the_peak_is_kept() -> None:
    gpu = SimulatedGPU(8 * GIB, Sharing.MPS)
    gpu.start(replace(JOB, memory=(GIB, 6 * GIB, 2 * GIB, GIB), utilisation=(10.0, 50.0)))
    seen = []
    for time in (0.0, 5.0, 10.0, 15.0):
        gpu.advance(time)
        seen.append((gpu.used // GIB, gpu.jobs["a"].peak // GIB, gpu.utilisation))
    assert [use[:2] for use in seen] == [(1, 1), (6, 6), (2, 6), (1, 6)]
    assert [use[2] for use in seen] == pytest.approx([10.0, 10.0, 50.0, 50.0])


def test_a_job_that_borrows_is_evicted_when_another_needs_its_guarantee() -> None:
    gpu = SimulatedGPU(8 * GIB, Sharing.MPS)
    borrower = replace(JOB, memory=(6 * GIB,), memory_limit=7 * GIB, guarantee=2 * GIB)
    entitled = replace(JOB, key="b", memory=(GIB, 4 * GIB), memory_limit=4 * GIB)
    assert start_all(gpu, [borrower, entitled]) == {}
    ended = run_out(gpu)
    assert "MPS client has been terminated by the server" in ended["a"].error
    assert (ended["a"].peak, ended["b"].peak) == (6 * GIB, 4 * GIB)
    assert not ended["b"].error


def test_a_job_that_borrows_is_evicted_by_a_job_that_starts() -> None:
    gpu = SimulatedGPU(8 * GIB, Sharing.MPS)
    borrower = replace(JOB, memory=(6 * GIB,), memory_limit=7 * GIB, guarantee=2 * GIB)
    started = start_all(
        gpu, [borrower, replace(JOB, key="b", memory=(3 * GIB,), memory_limit=6 * GIB)]
    )
    assert started.keys() == {"a"}
    assert gpu.used == 3 * GIB


def test_a_job_goes_on_where_it_was() -> None:
    gpu = SimulatedGPU(8 * GIB, Sharing.MPS, 100.0)
    gpu.start(replace(JOB, memory=(GIB, 3 * GIB)), done=15.0)
    assert gpu.used == 3 * GIB
    assert run_out(gpu)["a"].time == pytest.approx(105.0)


def test_a_job_that_was_done_already_ends_at_once() -> None:
    gpu = SimulatedGPU(8 * GIB, Sharing.MPS, 100.0)
    gpu.start(JOB, done=1000.0)
    assert gpu.next_event() == 100.0
    assert run_out(gpu)["a"].time == 100.0


def test_a_stopped_job_leaves_at_once() -> None:
    gpu = SimulatedGPU(8 * GIB, Sharing.MPS)
    start_all(gpu, [JOB, replace(JOB, key="b", memory=(GIB,))])
    gpu.advance(10.0)
    assert gpu.stop("b", "killed") == Ended("b", 10.0, GIB, "killed")
    left = 20.0 - gpu.jobs["a"].done
    assert run_out(gpu)["a"].time == pytest.approx(10.0 + left)


def test_two_jobs_of_one_key_are_refused() -> None:
    gpu = SimulatedGPU(8 * GIB, Sharing.MPS)
    gpu.start(JOB)
    with pytest.raises(ValueError, match="runs on this GPU already"):
        gpu.start(JOB)


@given(jobs=st.lists(works, min_size=1, max_size=6, unique_by=lambda w: w.key), mode=modes)
def test_memory_never_exceeds_the_gpu_nor_a_jobs_limit(jobs: list[Work], mode: Sharing) -> None:
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
    jobs: list[Work], steps: list[float], mode: Sharing
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
    gpu = SimulatedGPU(8 * GIB, Sharing.MPS, 50.0)
    gpu.start(JOB)
    assert gpu.advance(10.0) == []
    assert gpu.now == 50.0


def test_a_job_that_repeats_uses_the_gpu_in_the_same_way_again_and_never_ends() -> None:
    gpu = SimulatedGPU(8 * GIB, Sharing.MPS)
    gpu.start(replace(JOB, duration=10.0, memory=(GIB, 3 * GIB), memory_limit=None, repeats=True))
    seen = []
    for second in range(1, 40, 5):
        assert gpu.advance(second) == []
        seen.append(gpu.used // GIB)
    assert seen == [1, 3] * 4


def test_a_job_without_duration_does_not_repeat_for_ever() -> None:
    gpu = SimulatedGPU(8 * GIB, Sharing.MPS)
    gpu.start(replace(JOB, duration=0.0, memory_limit=None, repeats=True))
    assert [end.key for end in gpu.advance(1.0)] == [JOB.key]
