"""`partita train`: what it writes, from what it learns, and what it says when it cannot."""

import pytest
from click.testing import CliRunner, Result

from partita.cli import main
from partita_policies import create
from partita_policies.dqn import DQN, DQNParameters
from partita_policies.recordings import Decision, dump_record
from partita_policies.types import GPU, Job, Profile, RunningJob, Snapshot, Step
from partita_research.training.deep_q import Training
from partita_research.training.held_out import Improvement
from support.output import check_output

GIB = 1 << 30


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """Make every training a very small one."""

    def small(**settings):
        return Training(**{"iterations": 1, "workloads": 1, "tried": 4, "steps": 2, **settings})

    monkeypatch.setattr("partita_research.training.deep_q.Training", small)


def invoke(*args: object) -> Result:
    return CliRunner().invoke(main, ["train", *map(str, args)])


def write_recording(path) -> None:
    profiles = [
        Profile(f"own-{i}", 60.0 + i, (Step(30.0 + i, (1 + i) * GIB, 20.0),) * 4) for i in range(3)
    ]
    jobs = tuple(
        Job(f"j{i}", f"j{i}", "team", 2 * GIB, application=one.application, profile=one)
        for i, one in enumerate(profiles[:2])
    )
    held = RunningJob("b", 4 * GIB, application="own-2", profile=profiles[2])
    gpu = GPU("gpu", "node", 16 * GIB, 8, pcie_bandwidth=10**10, running=(held,))
    snapshot = Snapshot("gold", 0.0, jobs, (gpu,))
    path.write_bytes(b"".join(dump_record(snapshot, Decision("fifo", ()))))


@pytest.fixture
def better(monkeypatch):
    """Let every training beat the untrained policy."""
    found = Improvement(-0.02, 0.01, 2)
    monkeypatch.setattr("partita_research.training.held_out.held_out", lambda *_, **__: found)


def test_a_network_that_is_not_better_replaces_none(tmp_path) -> None:
    model = tmp_path / "model.npz"
    model.write_text("the old one")
    result = invoke(model, "--workloads", "2")
    assert result.exit_code == 1
    assert "not clearly better than the untrained policy" in result.stderr
    assert model.read_text() == "the old one"
    DQN(DQNParameters(model=tmp_path / "model.npz.not-better"))


@pytest.mark.usefixtures("better")
def test_it_writes_a_model_that_the_policy_takes(tmp_path) -> None:
    model = tmp_path / "model.npz"
    result = invoke(model, "--seed", "3", "--workloads", "2", "-o", "json")
    assert result.exit_code == 0, result.output
    assert "Makespan, all jobs at once, against the untrained policy: " in result.stderr
    report = check_output("train", result.stdout)
    assert report["training"]["seed"] == 3
    assert [len(curve) for curve in report["curves"].values()] == [1, 1]
    assert [len(one) for one in report["correlations"].values()] == [1, 1]
    assert report["heldOut"]["Completion"]["workloads"] == 2
    policy = DQN(DQNParameters(model=model))
    assert policy.model.about["training"]["seed"] == 3


@pytest.mark.usefixtures("better")
def test_it_learns_from_a_clusters_own_applications(tmp_path) -> None:
    write_recording(tmp_path / "one.jsonl")
    model = tmp_path / "model.npz"
    args = (model, "--snapshots", tmp_path, "--workloads", "2")
    assert invoke(*args).exit_code == 0
    assert model.exists()


def test_recordings_without_a_profile_are_told(tmp_path) -> None:
    (tmp_path / "one.jsonl").write_text("{}\n")
    result = invoke(tmp_path / "model.npz", "--snapshots", tmp_path)
    assert result.exit_code == 1
    assert "one.jsonl:1: " in result.stderr
    assert "no snapshot shows a job with a measured profile" in result.stderr


@pytest.mark.parametrize("policy", ["deeprm-max", "deeprm-mean"])
def test_deeprm_is_trained_repeatably_by_the_same_command(policy, tmp_path, better) -> None:
    args = ("--policy", policy, "--iterations", 2, "--workloads", 2)
    models = [tmp_path / f"{seed}-{turn}.npz" for seed, turn in ((1, 0), (1, 1), (2, 0))]
    for model in models:
        result = invoke(model, *args, "--seed", model.name[0])
        assert result.exit_code == 0, result.output
    one, again, other = (create(policy, {"model": str(m)})._network.arrays for m in models)
    assert all((one[name] == again[name]).all() for name in one)
    assert (one["hidden"] != other["hidden"]).any()
