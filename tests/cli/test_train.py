"""`partita train`: what it writes, from what it learns, and what it says when it cannot."""

import importlib.util
import json

import pytest

from partita_policies.dqn import DQN, DQNParameters
from partita_policies.recordings import Decision, dump_record
from partita_policies.types import GPU, Job, Profile, RunningJob, Snapshot, Step
from partita_research.training.policy_gradient import Training

GIB = 1 << 30


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """Make every training a very small one."""

    def small(**settings):
        return Training(**{"iterations": 1, "workloads": 1, "runs": 2, **settings})

    monkeypatch.setattr("partita_research.training.policy_gradient.Training", small)


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


def test_it_writes_a_model_that_the_policy_takes(invoke, tmp_path) -> None:
    model = tmp_path / "model.npz"
    result = invoke("train", str(model), "--seed", "3", "--workloads", "2", "-o", "json")
    assert result.exit_code == 0, result.output
    assert "Makespan, all jobs at once, against the untrained policy: " in result.stderr
    report = json.loads(result.stdout)
    assert report["training"]["seed"] == 3
    assert [len(curve) for curve in report["curves"].values()] == [1, 1]
    assert report["held_out"]["Completion"]["workloads"] == 2
    policy = DQN(DQNParameters(model=model))
    assert policy._model.about["training"]["seed"] == 3


def test_it_learns_from_a_clusters_own_applications(invoke, tmp_path) -> None:
    write_recording(tmp_path / "one.jsonl")
    model = tmp_path / "model.npz"
    args = ("train", str(model), "--snapshots", str(tmp_path), "--workloads", "2")
    assert invoke(*args).exit_code == 0
    assert model.exists()


def test_recordings_without_a_profile_are_told(invoke, tmp_path) -> None:
    (tmp_path / "one.jsonl").write_text("{}\n")
    result = invoke("train", str(tmp_path / "model.npz"), "--snapshots", str(tmp_path))
    assert result.exit_code == 1
    assert "one.jsonl:1: " in result.stderr
    assert "no snapshot shows a job with a measured profile" in result.stderr


def test_without_torch_it_tells_what_to_install(invoke, tmp_path, monkeypatch) -> None:
    there = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *rest: None if name == "torch" else there(name, *rest),
    )
    result = invoke("train", str(tmp_path / "model.npz"))
    assert (result.exit_code, result.stderr) == (
        1,
        "Error: torch is not installed: run `pip install -e '.[train]'` in a checkout of Partita\n",
    )
