"""The Gymnasium environment: what its checker asks, what its rewards sum up to, what it trains."""

import importlib.util
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from partita_policies import GPU, Objective, check_policy
from partita_research.environment import ChoicePolicy
from partita_research.environment.scheduling import ID, SchedulingEnv
from partita_research.simulator import simulate
from partita_research.simulator.synthetic import random_tasks

CARD = GPU("gpu-0", "node-0", 16 << 30, max_jobs=8, pcie_bandwidth=15_750_000_000)
CARDS = (CARD, replace(CARD, id="gpu-1"))


def arriving(number, gpus):
    return random_tasks(number, 20, gpus[0], interval=40.0)


def first(_, mask):
    return int(np.argmax(mask))


def played(env, choose, seed=1):
    """Return the sum of the rewards of an episode, and what it told at the end."""
    observation, info = env.reset(seed=seed)
    total, over = 0.0, False
    while not over:
        assert env.observation_space.contains(observation)
        assert info["action_mask"].tolist() == env.action_masks().tolist()
        assert info["action_mask"][:-1].any(), "there is something to choose"
        observation, reward, over, cut, info = env.step(choose(observation, env.action_masks()))
        assert not cut
        total += reward
    return total, info


@pytest.mark.parametrize("gpus", [CARDS[:1], CARDS])
def test_it_is_an_environment_as_gymnasium_wants_it(gpus):
    check_env(SchedulingEnv(gpus, draw=arriving), skip_render_check=True)


def test_random_actions_end_all_jobs_of_the_workload():
    random = np.random.default_rng(0)
    env = SchedulingEnv(CARDS, draw=arriving)
    played(env, lambda _, mask: random.integers(len(mask)))  # many of them impossible
    assert all(job.finish is not None for job in env.result().jobs)


def test_it_may_wait_for_the_end_of_a_job_and_for_nothing_else():
    env = gymnasium.make(ID, gpus=CARDS[:1]).unwrapped
    env.reset(seed=1)
    assert not env.action_masks()[-1]
    env.step(env.action_masks().argmax())
    assert env.action_masks()[-1]


@pytest.mark.parametrize("objective", [Objective.MAKESPAN, Objective.COMPLETION])
def test_the_rewards_sum_up_to_the_objective(objective):
    """The same choices cost in the environment what they cost as a policy in the simulator."""
    drawn = []

    def draw(number, gpus):
        drawn[:] = arriving(number, gpus)
        return drawn

    env = SchedulingEnv(CARDS, window=4, objective=objective, draw=draw)
    total, _ = played(env, first)
    result = simulate(drawn, CARDS, ChoicePolicy(first, window=4, gpus=2))
    alone = sum(task.truth.duration for task in drawn) / len(CARDS)
    costs = {
        Objective.MAKESPAN: result.makespan / alone,
        Objective.COMPLETION: 2 * fmean(job.finish - job.submitted for job in result.jobs) / alone,
    }
    assert -total == pytest.approx(costs[objective])


def test_a_seed_determines_the_episode():
    env = SchedulingEnv(CARDS)
    assert played(env, first, seed=3)[0] == played(env, first, seed=3)[0]
    assert played(env, first, seed=3)[0] != played(env, first, seed=4)[0]


def test_a_job_on_several_gpus_is_refused():
    def draw(number, gpus):
        one, *others = arriving(number, gpus)
        return [replace(one, job=replace(one.job, gpus=2)), *others]

    with pytest.raises(ValueError, match="one GPU each"):
        SchedulingEnv(CARDS, draw=draw).reset(seed=1)


def test_choices_make_a_valid_policy():
    class First(ChoicePolicy):
        """Take the first action that is possible."""

        def __init__(self, _):
            super().__init__(first, window=8, gpus=4)

    check_policy(First)


def test_the_example_trains_a_policy_that_ends_its_workloads():
    path = Path(__file__).parents[2] / "examples" / "policies" / "train_ppo.py"
    spec = importlib.util.spec_from_file_location("train_ppo", path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    makespans = example.main(512)
    assert makespans["trained"] < 3 * makespans["fifo"]
