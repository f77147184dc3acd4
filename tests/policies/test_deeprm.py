"""DeepRM: what its network is given, and which jobs it may start."""

import numpy as np
import pytest

from partita_policies import check_policy
from partita_policies.deeprm import INPUTS, SLOTS, DeepRMMax, DeepRMMean, DeepRMParameters, see
from partita_policies.dqn.demand import Catalogue
from partita_policies.dqn.offers import OfferRound
from partita_policies.dqn.served import ModelOutputError
from partita_policies.types import GPU, Job, Profile, RunningJob, Snapshot, Step

GIB = 1 << 30
BURSTS = Profile("bursts", 100.0, (Step(20.0, GIB, 12.0),) * 3 + (Step(100.0, GIB, 60.0),))


def a_snapshot(*profiles: Profile, running: tuple[Profile, ...] = ()) -> Snapshot:
    jobs = tuple(
        Job(f"j{i}", f"j{i}", "team", GIB, duration=one.duration, profile=one, application=f"{i}")
        for i, one in enumerate(profiles)
    )
    running = tuple(RunningJob(f"b{i}", GIB, profile=one) for i, one in enumerate(running))
    gpu = GPU("gpu-0", "node-0", 12 * GIB, 8, pcie_bandwidth=10**10, running=running)
    return Snapshot("test", 0.0, jobs, (gpu,))


@pytest.mark.parametrize("policy", [DeepRMMax, DeepRMMean])
def test_it_passes_the_public_checks(policy) -> None:
    check_policy(policy, jobs=300, gpus=30)


@pytest.mark.parametrize(("usage", "together"), [("max", False), ("mean", True)])
def test_jobs_are_taken_to_use_a_constant_amount(usage, together: bool) -> None:  # noqa: FBT001
    """Two of 100 % at most and 40 % on average fit together only by their means."""
    catalogue = Catalogue()
    offers = OfferRound(a_snapshot(BURSTS, running=(BURSTS,)), catalogue).make_offers(SLOTS, 64)
    states, legal = see(offers, catalogue, usage)
    assert states.shape == (1, INPUTS)
    assert legal[0].tolist() == [True, together, *[False] * (SLOTS - 1)]
    assert states[0, 0] == pytest.approx(1.0 if usage == "max" else 0.4)


def test_an_idle_gpu_does_not_wait() -> None:
    catalogue = Catalogue()
    offers = OfferRound(a_snapshot(BURSTS), catalogue).make_offers(SLOTS, 64)
    assert see(offers, catalogue, "max")[1][0].tolist() == [False, True, *[False] * (SLOTS - 1)]


def test_an_answer_that_is_no_number_is_an_error(monkeypatch) -> None:
    policy = DeepRMMax(DeepRMParameters())

    class Broken:
        def run(self, _outputs, given):
            return [np.full(given["legal"].shape, np.nan, np.float32)]

    monkeypatch.setattr(policy, "_session", Broken())
    with pytest.raises(ModelOutputError):
        policy.decide(a_snapshot(BURSTS))
