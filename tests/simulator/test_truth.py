"""Simulations against two truths: a slower computation of the progress, and recorded results."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from partita_policies import GPU, Node, Sharing, create
from partita_policies.interference import load_of, slowdowns
from partita_policies.simulator.tasks import mean_step
from partita_research.simulator import SimulatedOutcome, simulate, task_of
from partita_research.simulator.synthetic import random_application
from simulator.scenes import GIB, Whim

SPEEDS = {"old": 1.0, "new": 2.5}
NODES = [Node(f"node-{n}", cpu=8000, memory=8 * GIB) for n in range(3)]
GOLDEN = Path(__file__).parent / "golden" / "results.yaml"


def workload(seed):
    """GPUs of several kinds, and jobs of every kind that the simulator knows."""
    random = Random(seed)
    cards = [
        GPU(
            id=f"gpu-{n}",
            node=f"node-{n // 2}",
            memory=random.choice([12, 24]) * GIB,
            max_jobs=random.choice([2, 4, 16]),
            product=random.choice(["old", "new"]),
            pcie_bandwidth=random.choice([0, 32 * 10**9]),
            sm_partitions=random.choice([0, 0, 0, 4]),
        )
        for n in range(random.choice([1, 4, 6]))
    ]
    known = [random_application(random, f"app-{n}", cards[0]) for n in range(5)]
    return [_task(random, f"job-{n}", known) for n in range(random.choice([5, 16]))], cards


def _task(random, name, known):
    truth = random.choice(known)
    truth = replace(truth, duration=random.choice([truth.duration, 100.0]))
    memory = int(truth.peak_memory * random.choice([0.5, 0.7, 1, 1.3, 3]))
    task = task_of(
        truth,
        name,
        memory=memory,
        memory_limit=random.choice([0, 0, 2 * memory, 4 * memory]),
        submitted=random.choice([0.0, 50.0, random.uniform(0, 500)]),
        priority=random.choice([0, 0, 5]),
        lasting=random.random() < 0.1,
    )
    job = replace(
        task.job,
        gpus=1 if task.job.lasting else random.choice([1, 1, 1, 2]),
        alone=random.random() < 0.1,
        thread_percent=random.choice([100, 100, 50, 10, 0]),
        cpu=random.choice([0, 0, 2000]),
    )
    return replace(task, job=job)


def outcome_of(seed, sharing):
    tasks, cards = workload(seed)
    policy = create("fifo") if seed % 4 == 0 else Whim(seed)
    nodes = NODES if seed % 3 == 0 else ()
    return tasks, simulate(tasks, cards, policy, sharing=sharing, speeds=SPEEDS, nodes=nodes)


def replayed(tasks, result, sharing):
    """The work of each attempt, in small steps of time from what ran beside it."""
    truths = {task.job.id: task for task in tasks}
    gpus = {gpu.id: gpu for gpu in result.gpus}
    attempts = result.attempts
    done = [0.0] * len(attempts)
    times = sorted({time for one in attempts for time in (one.start, one.end)})
    now = 0.0
    for until in times:
        while now < until - 1e-9:
            there = [i for i, one in enumerate(attempts) if one.start <= now < one.end - 1e-9]
            pace = dict.fromkeys(there, 0.0)
            for gpu in gpus.values():
                here = [i for i in there if gpu.id in attempts[i].gpus]
                loads = [load(truths[attempts[i].job], done[i], gpu) for i in here]
                for i, slow in zip(here, slowdowns(loads, sharing), strict=True):
                    pace[i] = max(pace[i], slow / SPEEDS[gpu.product])
            ends = [
                (end_of_step(truths[attempts[i].job], done[i]) - done[i]) * pace[i] for i in there
            ]
            passed = max(min([until - now, *ends]), 1e-9)
            for i in there:
                done[i] += passed / pace[i]
            now += passed
        now = until
    return done


def load(task, done, gpu):
    """What an application loads a GPU with after some work."""
    job, truth = task.job, task.truth
    index = min(int(done / truth.duration * len(truth.steps) + 1e-7), len(truth.steps) - 1)
    step = mean_step(truth) if job.lasting else truth.steps[index]
    threads = 100 if job.alone else job.thread_percent
    return load_of(step, gpu, cache=truth.cache, thread_percent=threads)


def end_of_step(task, done):
    length = task.truth.duration / len(task.truth.steps)
    return (int(done / length + 1e-7) + 1) * length


@pytest.mark.parametrize("sharing", Sharing)
@pytest.mark.parametrize("seed", range(6))
def test_every_finished_run_has_done_its_work_at_the_paces_of_the_model(seed, sharing):
    tasks, result = outcome_of(seed, sharing)
    truths = {task.job.id: task.truth for task in tasks}
    assert result.finished
    for attempt, done in zip(result.attempts, replayed(tasks, result, sharing), strict=True):
        if attempt.outcome is SimulatedOutcome.FINISHED:
            assert done == pytest.approx(truths[attempt.job].duration, rel=1e-5)


def test_results_are_those_that_were_recorded(golden):
    golden(
        GOLDEN,
        [f"{seed} {sharing} {_told(seed, sharing)}" for seed in range(12) for sharing in Sharing],
    )


def _told(seed, sharing):
    result = outcome_of(seed, sharing)[1]
    ends = [one.outcome for one in result.attempts]
    counts = " ".join(
        f"{outcome}:{ends.count(outcome)}" for outcome in SimulatedOutcome if outcome in ends
    )
    figures = (
        sum(one.start for one in result.attempts),
        sum(one.end for one in result.attempts),
        sum(one.alone for one in result.attempts),
        result.gpu_utilisation,
        result.memory_utilisation,
    )
    told = " ".join(f"{figure:.3f}" for figure in figures)
    return f"{counts} decisions:{result.decisions} rejected:{result.rejected} {told}"
