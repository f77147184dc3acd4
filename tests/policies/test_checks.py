import itertools
import time
from dataclasses import replace

import pytest

from partita_policies import (
    FreeCapacity,
    Parameters,
    Placement,
    PolicyCheckError,
    PolicyParametersError,
    check_policy,
    complaints_about,
)
from partita_policies.check_cases import one_small_job
from partita_policies.fifo import FIFO, FIFOParameters
from support.polling import TIMEOUT

SMALL = {"jobs": 30, "gpus": 10}


class Base:
    """A right policy, of which each of the following gets one thing wrong."""

    parameters = Parameters

    def __init__(self, _parameters=None):
        self.asked = 0

    def decide(self, snapshot):
        self.asked += 1
        return list(FIFO(FIFOParameters()).decide(snapshot))


class Raises(Base):
    def decide(self, snapshot):
        return [Placement(snapshot.jobs[0].id, (snapshot.gpus[0].id,))]


class ReturnsNone(Base):
    def decide(self, _snapshot):
        return None


class ReturnsPairs(Base):
    def decide(self, snapshot):
        return [(job.id, ("gpu-0",)) for job in snapshot.jobs]


class NamesOneGPUWithoutTuple(Base):
    def decide(self, snapshot):
        return [
            replace(placement, gpus=placement.gpus[0]) for placement in super().decide(snapshot)
        ]


class PlacesUnknownJobs(Base):
    def decide(self, snapshot):
        return [replace(one, job=one.job.upper()) for one in super().decide(snapshot)]


class PlacesUnknownGPUs(Base):
    def decide(self, snapshot):
        return [replace(one, gpus=(*one.gpus[1:], "GPU")) for one in super().decide(snapshot)]


class PlacesTwice(Base):
    def decide(self, snapshot):
        return super().decide(snapshot) * 2


class ForgetsItsOwnPlacements(Base):
    def decide(self, snapshot):
        found = ((job, FreeCapacity(snapshot.gpus).first_fit(job)) for job in snapshot.jobs)
        return [Placement(job.id, gpus) for job, gpus in found if gpus]


def blind(gpu=None, **job):
    """Return a policy that sees jobs and GPUs with some fields at other values."""

    class Blind(Base):
        def decide(self, snapshot):
            jobs = tuple(replace(one, **job) for one in snapshot.jobs)
            gpus = tuple(replace(one, **(gpu or {})) for one in snapshot.gpus)
            return super().decide(replace(snapshot, jobs=jobs, gpus=gpus))

    return Blind


class NeverPlaces(Base):
    def decide(self, _snapshot):
        return []


class Remembers(Base):
    def decide(self, snapshot):
        answer = super().decide(snapshot)
        return answer if self.asked < 25 else answer[1:]


class DiffersByInstance(Base):
    counter = itertools.count()

    def __init__(self, parameters=None):
        super().__init__(parameters)
        self.index = next(self.counter) % 2

    def decide(self, snapshot):
        answer = super().decide(snapshot)
        return answer if self.index else answer[::-1]


class ChangesTheSnapshot(Base):
    def decide(self, snapshot):
        for job in snapshot.jobs:
            object.__setattr__(job, "memory", 0)
        return []


class IsSlow(Base):
    def decide(self, snapshot):
        end = time.monotonic() + 0.001 * len(snapshot.jobs)
        while time.monotonic() < end:
            pass
        return super().decide(snapshot)


@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        (Raises, "raised IndexError: tuple index out of range; return what can be placed"),
        (ReturnsNone, "returned NoneType, not a sequence of Placement"),
        (ReturnsPairs, "returned list, not a sequence of Placement"),
        (NamesOneGPUWithoutTuple, "the GPUs as a tuple"),
        (PlacesUnknownJobs, "places 'ID-OF-SMALL', which does not wait"),
        (PlacesUnknownGPUs, r"cannot have GPU \(Unknown\); name only ids of snapshot\.gpus"),
        (PlacesTwice, "places 'id-of-small' twice"),
        (blind(gpu={"running": ()}), r"\(Memory\); count what is allocated"),
        (ForgetsItsOwnPlacements, r"\(Memory\); .*this answer itself placed"),
        (blind(slots=1), r"\(Jobs\); count job.slots"),
        (blind(clients=1), r"\(Clients\); count job.clients"),
        (blind(alone=False), r"\(Alone\); give a job with `alone` an empty GPU"),
        (blind(gpus=1), r"\(Count\); name exactly"),
        (blind(gpu={"node": "one"}), r"\(Node\); choose all GPUs"),
        (NeverPlaces, "the job is not placed"),
        (Remembers, "another answer when asked again; keep no state.*, and seed"),
        (DiffersByInstance, "a fresh instance answers otherwise"),
        (ChangesTheSnapshot, "changed the snapshot; treat it as read-only"),
        (IsSlow, "30 jobs, 10 GPUs: .* more than 0.02 s"),
    ],
)
def test_each_kind_of_bad_policy_is_caught_with_its_remedy(policy, problem):
    bound = 0.02 if policy is IsSlow else TIMEOUT
    with pytest.raises(PolicyCheckError, match=problem) as caught:
        check_policy(policy, **SMALL, seconds=bound)
    assert all(complaint.remedy for complaint in caught.value.complaints)


def test_a_right_policy_passes_and_its_times_are_reported():
    report = check_policy(Base, **SMALL)
    assert report.seconds.keys() == report.placements.keys()
    assert report.placements["one job and an idle GPU"] == 1


def test_an_instance_can_be_checked_and_has_its_parameters_already():
    check_policy(Base(), **SMALL)
    with pytest.raises(TypeError, match="an instance has its own"):
        check_policy(Base(), {"a": 1})


def test_wrong_parameters_are_named():
    with pytest.raises(PolicyParametersError, match=r"FIFO.*windows: Extra inputs"):
        check_policy(FIFO, {"windows": 1})


def test_an_empty_set_of_gpus_is_told_as_such():
    (complaint,) = complaints_about(one_small_job(), [Placement("id-of-small", ())])
    assert "cannot have no GPU (Count)" in complaint.problem
