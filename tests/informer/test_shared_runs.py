"""Runs beside other jobs, compared with their prediction when a policy reads the profile."""

from typing import Any

import pytest

from informer.objects import versioned
from partita.informer.state import State
from partita.models.profile import application_hash
from support.builders import profile_body

GPU = {"product": "A100", "memory": "40Gi"}
STEP = {"gpuUtilization": 100, "gpuMemory": "1Gi"}


def body(name: str, namespace: str = "team-a", **measured: Any) -> dict[str, Any]:
    measurement = {"environment": GPU, "duration": "30s", "runs": 2, "steps": [STEP], **measured}
    found = profile_body(name, namespace=namespace)
    found["spec"] = {"application": name, "measurements": [measurement]}
    return versioned(found, 1, f"uid-{namespace}-{name}")


def ran(duration: str, *beside: tuple[str, str], part: float = 1.0, alone: float = 0.0) -> Any:
    keys = [application_hash(*one) for one in beside]
    return {
        "duration": duration,
        "alone": alone,
        "beside": [{"part": part, "applications": keys}],
    }


SLOW = ran("36s", ("team-b", "hog"))
ALONE = {"duration": "10s", "runs": 3}


def state_of(*bodies: dict[str, Any]) -> State:
    state = State()
    for one in bodies:
        state.apply_profile(one)
    return state


def found(state: State, name: str = "mine") -> Any:
    profile = state.profiles.profile("team-a", name, "A100")
    assert profile is not None
    return profile


def test_a_run_that_took_longer_than_predicted_is_evidence_for_its_pair():
    state = state_of(
        body("mine", undisturbed=ALONE, sharedRuns=[SLOW, SLOW]), body("hog", "team-b")
    )
    (pair,) = found(state).co_runs
    # Two jobs that need all SMs take turns and share the caches: between 2 and 3 times as long.
    assert (pair.application, pair.samples) == ("hog", 2)
    assert 3.6 / 3 < pair.ratio < 3.6 / 2


def test_the_length_that_policies_see_is_that_without_other_jobs():
    assert found(state_of(body("mine", undisturbed=ALONE))).duration == 10
    assert found(state_of(body("mine"))).duration == 30


@pytest.mark.parametrize(
    "measured",
    [
        {"sharedRuns": [SLOW]},
        {"undisturbed": {"duration": "0s"}, "sharedRuns": [SLOW]},
        {"undisturbed": ALONE, "sharedRuns": [ran("36s", ("team-a", "unknown"))]},
        {"undisturbed": ALONE, "sharedRuns": [ran("36s", ("team-b", "hog"), part=0.8)]},
    ],
    ids=["never alone", "no time", "no profile", "neighbours of a fifth unknown"],
)
def test_what_cannot_be_compared_says_nothing(measured):
    assert found(state_of(body("mine", **measured), body("hog", "team-b"))).co_runs == ()


def test_a_time_alone_is_not_a_time_beside_others():
    shared = ran("18s", ("team-b", "hog"), part=0.5, alone=0.5)
    state = state_of(body("mine", undisturbed=ALONE, sharedRuns=[shared]), body("hog", "team-b"))
    assert found(state).co_runs[0].samples == 0.5


def test_a_neighbour_s_profile_may_come_later_and_go():
    state = state_of(body("mine", undisturbed=ALONE, sharedRuns=[SLOW]))
    assert found(state).co_runs == ()
    hog = body("hog", "team-b")
    state.apply_profile(hog)
    assert len(found(state).co_runs) == 1
    state.apply_profile(hog, deleted=True)
    assert found(state).co_runs == ()


def test_the_profile_stays_the_same_object_while_others_change():
    state = state_of(body("mine"), body("other"))
    before = found(state)
    state.apply_profile(versioned(body("other", duration="40s"), 2))
    assert found(state) is before
