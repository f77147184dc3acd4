"""The learned policy as it is served: what it is shown, what it may do, what it refuses."""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partita_policies import FreeCapacity, PolicyStartError, check_policy, complaints_about, create
from partita_policies.dqn import DQN, DQNParameters, ModelError, ModelOutputError
from partita_policies.dqn.combination_forecast import Pool, forecast
from partita_policies.dqn.demand import Catalogue
from partita_policies.dqn.job_arrays import subsets
from partita_policies.dqn.observation import (
    CANDIDATE_FEATURES,
    STATE_FEATURES,
    Observation,
    observe,
)
from partita_policies.dqn.offers import OfferRound
from partita_policies.dqn.prices import ThroughputCache
from partita_policies.dqn.served import ScoringModel
from partita_policies.types import GPU, Job, Profile, RunningJob, Sharing, Snapshot, Step
from partita_research.simulator import simulate, task_of
from partita_research.simulator.workloads import study_applications, study_workload

GIB = 1 << 30
SHARE = st.floats(0, 1)


def profile(random: Random, name: str = "app", *, steps: int = 12) -> Profile:
    memory = random.randint(1, 6)
    return Profile(
        name,
        random.uniform(20, 400),
        tuple(
            Step(
                random.uniform(0, 100), memory * GIB, random.uniform(0, 60), random.uniform(0, 1e10)
            )
            for _ in range(steps)
        ),
    )


def job(name: str, of: Profile | None, memory: int = 4, **fields) -> Job:
    duration = of.duration if of else None
    return Job(
        name, name, "team", memory * GIB, duration=duration, profile=of, **fields
    )  # fmt: skip


def gpu(name: str = "gpu-0", running: Sequence[RunningJob] = (), memory: int = 12) -> GPU:
    return GPU(
        name, "node-0", memory * GIB, 8, pcie_bandwidth=32 * 10**9, running=tuple(running)
    )  # fmt: skip


def snapshot(jobs: Sequence[Job], gpus: Sequence[GPU], sharing: Sharing = Sharing.MPS) -> Snapshot:
    return Snapshot("test", 0.0, tuple(jobs), tuple(gpus), sharing)


def seen_on(jobs: Sequence[Job], gpus: Sequence[GPU], *, window: int = 4, **options) -> Observation:
    catalogue = Catalogue()
    offers = OfferRound(snapshot(jobs, gpus), catalogue).make_offers(window, 1 << 12)
    return observe(offers, catalogue, Sharing.MPS, ThroughputCache(), **options)


def test_a_forecast_follows_the_jobs_to_their_ends() -> None:
    """Two that fill the SMs run at half speed until the shorter is done, then at full speed."""
    loads = np.array([(1, 1, 0, 0), (1, 1, 0, 0)], np.float32).T[..., None]
    pool = Pool(loads, np.ones((2, 1), np.float32), np.array([[10], [30]], np.float32))
    members = np.array([[True, True], [False, True], [False, False]])
    predicted = forecast(pool, members.T[:, None], Sharing.MPS)
    assert predicted.finish[:, 0].T.tolist() == [
        pytest.approx([20, 40], rel=1e-3), pytest.approx([0, 30], rel=1e-3), [0, 0]
    ]  # fmt: skip
    assert predicted.throughput[0].tolist() == pytest.approx([1, 1, 0], rel=1e-3)
    assert predicted.first[0].tolist() == pytest.approx([20, 30, 0], rel=1e-3)


@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(0, 3))
def test_what_is_legal_has_room(seed: int, waiting: int, running: int) -> None:
    random = Random(seed)
    running = [
        RunningJob(f"b{i}", random.randint(1, 4) * GIB, started=-random.uniform(0, 300), profile=profile(random))
        for i in range(running)
    ]  # fmt: skip
    jobs = [
        job(f"j{i}", profile(random), random.randint(0, 9), alone=random.random() < 0.2,
            slots=random.randint(1, 3), clients=random.randint(1, 20))
        for i in range(waiting)
    ]  # fmt: skip
    catalogue = Catalogue()
    round_ = OfferRound(snapshot(jobs, [gpu(running=running)]), catalogue)
    for offer in round_.make_offers(6, 64):
        observation = observe([offer], catalogue, Sharing.MPS, ThroughputCache())
        assert observation.legal.any()
        assert np.isfinite(observation.states).all()
        assert np.isfinite(observation.candidates).all()
        for place in np.flatnonzero(observation.legal[0]):
            capacity = FreeCapacity([offer.free.gpu])
            for chosen in np.flatnonzero(subsets(len(offer.jobs))[place]):
                capacity.take(offer.jobs[chosen], (offer.free.gpu.id,))


def test_an_idle_gpu_does_not_wait_for_nothing() -> None:
    observation = seen_on([job("j", profile(Random(1)))], [gpu()])
    assert observation.legal.tolist() == [[False, True]]


def test_what_takes_longer_together_than_in_turns_is_forbidden() -> None:
    """Two busy jobs with much memory evict each other's cache lines."""
    greedy = Profile("greedy", 100.0, (Step(100.0, 30 * GIB, 60.0),) * 4)
    jobs = [job("a", greedy, 30), replace(job("b", greedy, 31), application="b")]
    together = seen_on(jobs, [gpu(memory=80)])
    assert together.legal.tolist() == [[False, True, True, False]]
    unmasked = seen_on(jobs, [gpu(memory=80)], mask=False)
    assert unmasked.legal.tolist() == [[True, True, True, True]]


def test_a_slowdown_budget_is_kept() -> None:
    half = Profile("half", 100.0, (Step(60.0, GIB, 36.0),) * 4)
    jobs = [job("a", half, 1), job("b", half, 2)]
    assert seen_on(jobs, [gpu()]).legal[0, 3]
    assert not seen_on(jobs, [gpu()], slowdown_budget=1.05).legal[0, 3]
    strict = DQN(DQNParameters(slowdown_budget=1.05))
    assert len(strict.decide(snapshot(jobs, [gpu()]))) == 1


def test_the_order_of_the_jobs_only_reorders_what_is_seen() -> None:
    random = Random(3)
    jobs = [job(f"j{i}", profile(random), 2 + i) for i in range(3)]
    forth, back = seen_on(jobs, [gpu()]), seen_on(jobs[::-1], [gpu()])
    combinations = subsets(3)
    mirrored = [
        int(np.flatnonzero((combinations == row[::-1]).all(axis=1))[0]) for row in combinations
    ]
    np.testing.assert_allclose(forth.states, back.states, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        forth.candidates[0], back.candidates[0, mirrored], rtol=1e-4, atol=1e-4
    )
    model = ScoringModel()
    first, second = model.estimates(forth)[0], model.estimates(back)[0, mirrored]
    legal = forth.legal[0]
    np.testing.assert_allclose(first[legal], second[legal], rtol=1e-3, atol=1e-4)


def test_equal_jobs_join_one_after_the_other() -> None:
    light = Profile("light", 100.0, (Step(10.0, GIB, 6.0),) * 4)
    jobs = [job(f"j{i}", light, 1) for i in range(4)]
    placed = DQN(DQNParameters()).decide(snapshot(jobs, [gpu()]))
    assert len(placed) > 1


def test_it_passes_the_public_checks() -> None:
    report = check_policy(DQN, jobs=600, gpus=60)
    assert report.placements["idle GPUs"] > 0
    check_policy(DQN, {"slowdown_budget": 1.05, "window": 3}, jobs=200, gpus=20)


def test_no_job_is_offered_to_two_gpus_at_a_time() -> None:
    random = Random(4)
    jobs = [job(f"j{i}", profile(random)) for i in range(10)]
    gpus = [gpu(f"gpu-{i}") for i in range(4)]
    offers = OfferRound(snapshot(jobs, gpus), Catalogue()).make_offers(6, 1 << 12)
    offered = [one.id for offer in offers for one in offer.jobs]
    assert len(offered) == len(set(offered))
    assert [len(offer.jobs) for offer in offers] == [3, 3, 3, 1]
    assert not list(
        complaints_about(snapshot(jobs, gpus), DQN(DQNParameters()).decide(snapshot(jobs, gpus)))
    )


@pytest.mark.parametrize(
    ("step", "duration"),
    [(Step(float("nan"), GIB), 10.0), (Step(-1.0, GIB), 10.0), (Step(1.0, GIB), float("inf"))],
)
def test_a_profile_of_no_amounts_is_refused(step: Step, duration: float) -> None:
    wrong = Profile("wrong", duration, (step,))
    with pytest.raises(ValueError, match=r"no amounts|no number"):
        DQN(DQNParameters()).decide(snapshot([job("j", wrong)], [gpu()]))


def test_an_answer_that_is_no_number_is_an_error(monkeypatch) -> None:
    policy = DQN(DQNParameters())

    class Broken:
        def run(self, _outputs, given):
            return [np.full(given["legal"].shape, np.nan, np.float32)]

    monkeypatch.setattr(policy._model, "_session", Broken())
    with pytest.raises(ModelOutputError, match="no finite number"):
        policy.decide(snapshot([job("j", profile(Random(1)))], [gpu()]))


def test_where_nothing_like_it_was_learnt_the_fastest_combination_is_taken() -> None:
    random = Random(6)
    policy = DQN(DQNParameters())
    policy._model.known = np.zeros((2, STATE_FEATURES), np.float32) - 100
    jobs = [job(f"j{i}", profile(random), 2 + i) for i in range(3)]
    observation = seen_on(jobs, [gpu()], window=6)
    assert policy._out_of_range(observation).all()
    best = int(np.where(observation.legal, observation.dual_value, -1).argmax())
    expected = {jobs[place].id for place in np.flatnonzero(subsets(3)[best])}
    first = policy.decide(snapshot(jobs, [gpu()]))[: len(expected)]
    assert {placement.job for placement in first} == expected


@pytest.mark.parametrize("damage", ["missing", "empty", "garbage", "folder"])
def test_a_model_file_that_is_none_is_named(tmp_path, damage: str) -> None:
    path = tmp_path / "model.onnx"
    if damage == "folder":
        path.mkdir()
    elif damage != "missing":
        path.write_bytes(b"" if damage == "empty" else b"garbage" * 99)
    with pytest.raises(PolicyStartError, match=r"model\.onnx: .*expected a file that") as caught:
        create("dqn", {"model": str(path)})
    assert isinstance(caught.value.__cause__, ModelError)


def test_the_shipped_model_says_how_it_was_made() -> None:
    model = ScoringModel()
    assert model.training["algorithm"] == "dqn"
    assert model.known is not None
    assert (model.known[0] <= model.known[1]).all()
    assert CANDIDATE_FEATURES > 0


def test_a_gpu_that_is_offered_later_may_run_what_no_other_does() -> None:
    """Its job's work was not priced in the first round; found on eight GPUs, this is the least."""
    random, card = Random(1), study_workload("random").gpus[0]
    known = list(study_applications().values())
    tasks = [task_of(random.choice(known), f"job-{i}", largest=card.memory) for i in range(12)]
    gpus = [replace(card, id=f"gpu-{i}") for i in range(2)]

    result = simulate(tasks, gpus, DQN(DQNParameters()))

    assert len(result.finished) == len(tasks)


def test_a_model_leaves_no_files_in_the_home_and_the_folder_for_temporary_files(
    tmp_path: Path,
) -> None:
    places = {name: str(tmp_path) for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME")}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ORT_")}
    program = "from partita_policies.dqn.served import ScoringModel; ScoringModel(None)"
    subprocess.run([sys.executable, "-c", program], env=kept | places, check=True)
    assert list(tmp_path.iterdir()) == []
