"""The simulation: what happens when, to whom, and that nothing else does."""

import math
from dataclasses import replace

import pytest

from partita_policies import Placement, Sharing, Step, create
from partita_research.simulator import Application, SimulatedOutcome, Simulation, simulate, task_of
from partita_research.simulator.services import with_services
from simulator.scenes import GIB, Scripted, application, gpus, queue


def test_above_its_allocation_under_mps_one_job_is_killed_and_comes_back_larger():
    greedy = application("greedy", memory=[1, 4])
    calm = application("calm", memory=[2])
    tasks = [task_of(greedy, "greedy", memory=3 * GIB), task_of(calm, "calm")]
    result = simulate(tasks, gpus(), create("fifo"))
    killed, *others = sorted(result.attempts, key=lambda attempt: attempt.end)
    assert (killed.job, killed.outcome) == ("greedy", SimulatedOutcome.OUT_OF_MEMORY)
    assert killed.end == pytest.approx(50)
    assert [attempt.outcome for attempt in others] == [SimulatedOutcome.FINISHED] * 2
    again = next(attempt for attempt in others if attempt.job == "greedy")
    assert again.memory == 4.5 * GIB
    assert again.end == pytest.approx(150)


def test_without_limits_the_job_that_asked_last_is_killed():
    early = application("early", memory=[1, 9, 9, 9], duration=100)
    late = application("late", memory=[2, 2, 6, 6], duration=100)
    tasks = [task_of(truth, truth.name, memory=5 * GIB) for truth in (early, late)]
    result = simulate(tasks, gpus(), create("fifo"), sharing=Sharing.TIME_SLICING)
    killed = result.attempts[0]
    assert (killed.job, killed.outcome) == ("late", SimulatedOutcome.OUT_OF_MEMORY)
    assert [job.outcome for job in result.jobs] == [SimulatedOutcome.FINISHED] * 2
    assert result.kills == 1


def test_a_job_that_needs_more_than_any_gpu_is_given_up_after_growing_to_the_largest():
    task = task_of(application(memory=[1, 20]), "huge", memory=4 * GIB)
    result = simulate([task], gpus(), create("fifo"))
    assert [attempt.memory / GIB for attempt in result.attempts] == [4, 6, 9, 12]
    assert result.jobs[0].outcome is SimulatedOutcome.OUT_OF_MEMORY
    assert not any(count for _, count in result.waiting())


def test_an_allocation_of_nothing_grows_until_it_is_enough():
    task = task_of(application(memory=[1]), "unknown", memory=0)
    result = simulate([task], gpus(), create("fifo"))
    assert result.jobs[0].outcome is SimulatedOutcome.FINISHED


def test_placements_that_break_a_limit_are_counted_and_not_made():
    tasks = queue(application(memory=[8]), application(memory=[8]))
    policy = Scripted(
        [
            Placement("job-0", ("gpu-0",)),
            Placement("job-0", ("gpu-0",)),
            Placement("job-1", ("gpu-0",)),
            Placement("nobody", ("gpu-0",)),
            Placement("job-1", ("nowhere",)),
        ]
    )
    result = simulate(tasks, gpus(), policy)
    assert result.rejected == 4
    assert [job.outcome for job in result.jobs] == [
        SimulatedOutcome.FINISHED,
        SimulatedOutcome.NEVER_PLACED,
    ]
    assert result.makespan == result.mean_completion == math.inf
    assert result.gpu_utilisation > 0


def test_all_that_happens_at_one_instant_is_one_decision():
    tasks = queue(*[application(duration=0.1 + 0.2), application(duration=0.3)] * 4)
    policy = Scripted([Placement(f"job-{n}", (f"gpu-{n}",)) for n in range(4)])
    simulate(tasks, gpus(4), policy)
    assert [snapshot.time for snapshot in policy.seen] == pytest.approx([0, 0.3])
    assert not any(gpu.running for gpu in policy.seen[1].gpus)


def test_a_job_that_later_ones_were_started_before_has_been_passed_over():
    tasks = queue(*[application()] * 3)
    policy = Scripted([Placement("job-1", ("gpu-0",))])
    simulate(tasks, gpus(), policy)
    assert [(job.id, job.bypasses) for job in policy.seen[1].jobs] == [("job-0", 1), ("job-2", 0)]


def test_jobs_wait_in_the_order_of_priority_and_age_and_allocations_tell_their_time():
    tasks = [
        task_of(application(), "first"),
        task_of(application(), "second", submitted=5),
        task_of(application(), "urgent", submitted=10, priority=1),
    ]
    policy = Scripted([Placement("first", ("gpu-0",))])
    simulate(tasks, gpus(), policy)
    assert [job.id for job in policy.seen[2].jobs] == ["urgent", "second"]
    assert policy.seen[2].gpus[0].running[0].started == 0


def test_what_a_training_loop_needs_is_told_between_decisions():
    simulation = Simulation(queue(*[application(duration=100)] * 2, every=10), gpus())
    assert simulation.next_decision() is not None
    simulation.apply([Placement("job-0", ("gpu-0",))])
    assert simulation.next_decision() is not None
    assert simulation.now == 10
    assert simulation.work_total == 200
    simulation.apply([Placement("job-1", ("gpu-0",))])
    assert simulation.next_decision() is None


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ({"duration": math.nan}, "duration"),
        ({"duration": 0.0}, "duration"),
        ({"cache": math.nan}, "cache"),
        ({"steps": ()}, "steps"),
        ({"steps": (Step(gpu=1, memory=1), Step(gpu=-1, memory=1))}, r"steps\[1\]\.gpu"),
        ({"steps": (Step(gpu=math.inf, memory=1),)}, r"steps\[0\]\.gpu"),
        ({"steps": (Step(gpu=1, memory=-1),)}, r"steps\[0\]\.memory"),
    ],
)
def test_an_application_that_cannot_be_is_refused_by_its_field(wrong, place):
    with pytest.raises(ValueError, match=place):
        replace(application(), **wrong)


def test_what_cannot_be_simulated_is_refused():
    tasks = queue(application())
    with pytest.raises(ValueError, match="job-0: expected ids that differ"):
        Simulation(tasks * 2, gpus())
    with pytest.raises(ValueError, match="GPUs: expected ids that differ"):
        Simulation(tasks, gpus() * 2)
    with pytest.raises(ValueError, match="speeds: : 0: expected"):
        Simulation(tasks, gpus(), speeds={"": 0})
    with pytest.raises(ValueError, match="submitted: nan"):
        Simulation(queue(application(), submitted=math.nan), gpus())


def test_no_jobs_and_no_gpus_end_at_once():
    assert simulate([], gpus(), create("fifo")).makespan == 0
    (task,) = queue(application())
    huge = replace(task, job=replace(task.job, gpus=10**12))
    assert simulate([huge], [], create("fifo")).jobs[0].outcome is SimulatedOutcome.NEVER_FITS


def test_the_sms_of_an_idle_static_partition_are_not_lent():
    busy = Application("busy", 100, (Step(gpu=80, memory=GIB, core=60),), cache=0)
    (gpu,) = gpus()
    alone = simulate(queue(busy), [replace(gpu, sm_partitions=4)], create("fifo"))
    assert alone.makespan == pytest.approx(100 * 0.8 / 0.25)
    four = simulate(queue(*[busy] * 4), [replace(gpu, sm_partitions=4)], create("fifo"))
    assert four.makespan == pytest.approx(100 * 0.8 / 0.25)
    assert simulate(queue(busy), [gpu], create("fifo")).makespan == pytest.approx(100)


class TestLasting:
    """Services: `lasting` jobs, which start before each decision and never end."""

    def test_a_service_runs_to_the_end_of_the_simulation_and_slows_jobs_down(self):
        reads = replace(application(gpu=40).steps[0], bandwidth=100)
        busy = Application("busy", 100, (reads,), cache=0)
        tasks = [task_of(busy, "job"), task_of(busy, "service", lasting=True)]
        result = simulate(tasks, gpus(), create("fifo"))
        job, service = result.jobs
        assert job.outcome is SimulatedOutcome.FINISHED
        assert service.outcome is SimulatedOutcome.RUNNING
        assert result.makespan == pytest.approx(200)
        assert (job.slowdown, service.slowdown) == pytest.approx((2, 2))
        assert result.services == (service,)
        assert result.finished == (job,)
        assert result.attempts[-1].end == pytest.approx(200)

    def test_policies_see_it_as_running_and_are_never_asked_about_it(self):
        policy = Scripted()
        service, job = queue(application(), application(), lasting=True)
        ends = replace(job, job=replace(job.job, lasting=False))
        simulate([replace(service, job=replace(service.job, gpus=2)), ends], gpus(3), policy)
        assert [job.id for job in policy.seen[0].jobs] == ["job-1"]
        seen = [[one.lasting for one in gpu.running] for gpu in policy.seen[0].gpus]
        assert seen == [[True], [True], []]

    def test_services_together_leave_a_part_of_the_memory_to_jobs(self):
        tasks = [
            task_of(application("service"), f"service-{n}", memory=4 * GIB, lasting=True)
            for n in range(3)
        ]
        result = simulate(tasks, gpus(), create("fifo"))
        outcomes = [job.outcome for job in result.jobs]
        assert outcomes == [SimulatedOutcome.RUNNING] * 2 + [SimulatedOutcome.NEVER_PLACED]

    def test_a_service_without_room_starts_when_a_job_ends(self):
        tasks = [
            task_of(application("job", duration=50), "job", memory=10 * GIB),
            task_of(application(), "service", memory=4 * GIB, lasting=True, submitted=10),
            task_of(application("last", duration=100), "last", memory=4 * GIB, submitted=60),
        ]
        result = simulate(tasks, gpus(), create("fifo"))
        assert result.jobs[1].start == pytest.approx(50)

    def test_its_memory_is_that_of_its_peak_from_the_start(self):
        greedy = application("greedy", memory=[1, 6])
        tasks = [task_of(greedy, "service", memory=4 * GIB, lasting=True), *queue(application())]
        result = simulate(tasks, gpus(), create("fifo"))
        killed = result.attempts[0]
        assert (killed.job, killed.outcome) == ("service", SimulatedOutcome.OUT_OF_MEMORY)
        assert result.jobs[0].outcome is SimulatedOutcome.RUNNING

    def test_a_share_of_a_workload_becomes_services(self):
        tasks = queue(*[application()] * 10)
        drawn = with_services(tasks, 0.3, seed=1)
        assert sum(task.job.lasting for task in drawn) == 3
        assert with_services(tasks, 0.3, seed=1) == drawn
        assert with_services(tasks, 0.0, seed=1) == tasks
