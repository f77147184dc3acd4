"""Runs beside other jobs, compared with their prediction when a policy reads the profile."""

from typing import Any

import pytest

from partita.models.profile import application_hash
from partita.store.state import State
from store.objects import versioned
from support.builders import profile_body

GPU = {"product": "A100", "memory": "40Gi"}
STEP = {"gpuUtilization": 100, "smOccupancy": 60, "gpuMemory": "1Gi"}


def body(name: str, namespace: str = "team-a", **measured: Any) -> dict[str, Any]:
    measurement = {"environment": GPU, "duration": "30s", "runs": 2, "steps": [STEP], **measured}
    found = profile_body(name, namespace=namespace)
    found["spec"] = {"application": name, "measurements": [measurement]}
    return versioned(found, 1, f"uid-{namespace}-{name}")


def ran(duration: str, *beside: tuple[str, str], part: float = 1.0, alone: float = 0.0) -> Any:
    keys = [application_hash(*one) for one in beside]
    return {"duration": duration, "alone": alone, "beside": [{"part": part, "applications": keys}]}


ALONE = {"undisturbed": 1, "duration": "10s"}
SLOW = ran("36s", ("team-b", "hog"))


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
    state = state_of(body("mine", **ALONE, sharedRuns=[SLOW, SLOW]), body("hog", "team-b"))
    (pair,) = found(state).co_runs
    # Two jobs that need all SMs take turns and share the caches: between 2 and 3 times as long.
    assert (pair.application, pair.samples) == ("hog", 2)
    assert 3.6 / 3 < pair.ratio < 3.6 / 2


@pytest.mark.parametrize(
    "measured",
    [
        {"sharedRuns": [SLOW]},
        {"undisturbed": 1, "duration": "0s", "sharedRuns": [SLOW]},
        {**ALONE, "sharedRuns": [ran("36s", ("team-a", "unknown"))]},
        {**ALONE, "sharedRuns": [ran("36s", ("team-b", "hog"), part=0.8)]},
    ],
    ids=["never alone", "no time", "no profile", "neighbours of a fifth unknown"],
)
def test_what_cannot_be_compared_says_nothing(measured):
    assert found(state_of(body("mine", **measured), body("hog", "team-b"))).co_runs == ()


def test_an_application_that_was_never_alone_is_compared_with_its_other_runs():
    usual, slow = ran("20s", ("team-a", "calm")), ran("40s", ("team-b", "hog"))
    calm = body("calm", steps=[{**STEP, "gpuUtilization": 1, "smOccupancy": 0.6}])
    bodies = [
        calm,
        body("hog", "team-b", steps=[{**STEP, "gpuUtilization": 1, "smOccupancy": 0.6}]),
    ]
    few = state_of(body("mine", sharedRuns=[usual, slow]), *bodies)
    assert found(few).co_runs == ()
    enough = state_of(body("mine", sharedRuns=[usual, usual, slow]), *bodies)
    ratios = {pair.application: pair.ratio for pair in found(enough).co_runs}
    assert ratios["calm"] < 1 < ratios["hog"]
    assert ratios["hog"] / ratios["calm"] == pytest.approx(2, rel=0.02)
    # The predictions are nearly 1, so this is the mean length of its runs.
    assert found(enough).duration == pytest.approx(20 * 2 ** (1 / 3), rel=0.02)


def test_a_time_alone_is_not_a_time_beside_others():
    shared = ran("18s", ("team-b", "hog"), part=0.5, alone=0.5)
    state = state_of(body("mine", **ALONE, sharedRuns=[shared]), body("hog", "team-b"))
    assert found(state).co_runs[0].samples == 0.5


def test_a_neighbour_s_profile_may_come_later_and_go():
    state = state_of(body("mine", **ALONE, sharedRuns=[SLOW]))
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
