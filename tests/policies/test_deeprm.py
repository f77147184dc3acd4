"""DeepRM: which jobs its network may start, and what it refuses."""

import numpy as np
import pytest

from partita_policies import PolicyStartError, check_policy, create
from partita_policies.deeprm import DeepRMMax, DeepRMMean, DeepRMParameters
from partita_policies.network import ModelOutputError
from partita_policies.types import GPU, Job, Profile, RunningJob, Snapshot, Step
from support.polling import TIMEOUT

GIB = 1 << 30
BURSTS = Profile("bursts", 100.0, (Step(20.0, GIB, 12.0),) * 3 + (Step(100.0, GIB, 60.0),))


def a_snapshot(running: tuple[Profile, ...] = ()) -> Snapshot:
    job = Job("j", "j", "team", GIB, duration=100.0, profile=BURSTS)
    held = tuple(RunningJob(f"b{i}", GIB, profile=one) for i, one in enumerate(running))
    gpu = GPU("gpu-0", "node-0", 12 * GIB, 8, pcie_bandwidth=10**10, running=held)
    return Snapshot("test", 0.0, (job,), (gpu,))


def eager(policy_type):
    """Return a policy whose network would start every job rather than none."""
    policy = policy_type(DeepRMParameters())
    weights = policy._network.arrays
    weights["choice"] = np.zeros_like(weights["choice"])
    weights["choice_bias"] = np.array([0, *[1] * (len(weights["choice_bias"]) - 1)], np.float32)
    return policy


@pytest.mark.parametrize("policy", [DeepRMMax, DeepRMMean])
def test_it_passes_the_public_checks(policy) -> None:
    check_policy(policy, jobs=300, gpus=30, seconds=TIMEOUT)


@pytest.mark.parametrize(("policy", "together"), [(DeepRMMax, False), (DeepRMMean, True)])
def test_jobs_are_taken_to_use_a_constant_amount(policy, *, together: bool) -> None:
    """Two of 100 % at most and 40 % on average fit together only by their means."""
    assert bool(eager(policy).decide(a_snapshot((BURSTS,)))) is together


def test_an_answer_that_is_no_number_is_an_error() -> None:
    policy = DeepRMMax(DeepRMParameters())
    policy._network.arrays["choice_bias"] = np.full(6, np.nan, np.float32)
    with pytest.raises(ModelOutputError):
        policy.decide(a_snapshot())


def test_the_network_of_the_other_variant_is_refused(tmp_path) -> None:
    path = tmp_path / "model.npz"
    DeepRMMean(DeepRMParameters())._network.save(path)
    with pytest.raises(PolicyStartError, match=r"model\.npz.*'deeprm-mean'.*'deeprm-max'"):
        create("deeprm-max", {"model": str(path)})
