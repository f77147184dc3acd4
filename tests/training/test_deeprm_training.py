"""DeepRM: how it is trained, and that the exported network answers as the trained one."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from partita_policies import PolicyStartError, create
from partita_policies.deeprm import INPUTS, SLOTS, DeepRMMean, DeepRMParameters
from partita_research.training.deeprm_training import DeepRMTraining, export_deeprm, train_deeprm
from partita_research.training.learning_environment import Scenario
from partita_research.training.scenarios import random_scenario


def short(number: int) -> Scenario:
    scenario = random_scenario(number)
    return scenario._replace(tasks=scenario.tasks[:5])


@pytest.mark.timeout(300)  # seconds of arithmetic, and minutes where others compute beside it
def test_the_served_network_answers_as_torch_does_and_learns_the_same_by_seed(tmp_path) -> None:
    training = DeepRMTraining(
        usage="mean", iterations=2, workloads=1, runs=2, validation=1, validate_every=1
    )
    curves = [list(train_deeprm(training, short)) for _ in range(2)]
    assert [report for report, _ in curves[0]] == [report for report, _ in curves[1]]
    network = curves[0][-1][1]
    path = tmp_path / "model.onnx"
    export_deeprm(network, training, path)
    policy = DeepRMMean(DeepRMParameters(model=path))
    states = np.random.default_rng(0).normal(size=(9, INPUTS)).astype(np.float32)
    legal = np.ones((9, SLOTS + 1), np.float32)
    (served,) = policy._session.run(["estimates"], {"states": states, "legal": legal})
    with torch.no_grad():
        assert_allclose(served, network(torch.from_numpy(states)).numpy(), atol=1e-5)
    with pytest.raises(PolicyStartError, match=r"model\.onnx.*'deeprm-mean'.*'deeprm-max'"):
        create("deeprm-max", {"model": str(path)})
