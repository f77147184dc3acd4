"""Profiles to which no run adds any more are deleted, and the oldest of too many."""

from datetime import timedelta
from typing import Any

import pytest

from partita.claims.profile_expiry import KEPT, MOST, ProfileExpiry, expired_profiles
from partita.models import ApplicationProfile
from partita.models.quantities import format_time
from support.builders import START, a_state, job_body, profile_body
from support.claims import claiming_pod_body
from support.fake_kube import FakeKube
from support.meanwhile import running
from support.polling import until

OLD = START - KEPT


def profile(application: str, last: Any = OLD, **fields: Any) -> dict[str, Any]:
    body = profile_body(application, name=application.replace("/", "-").lower(), **fields)
    return {**body, "spec": body["spec"] | ({"lastRun": format_time(last)} if last else {})}


@pytest.mark.parametrize(
    ("last", "in_use", "kept"),
    [(OLD, False, False), (OLD + timedelta(seconds=1), False, True), (OLD, True, True),
     (None, False, True)],
)  # fmt: skip
def test_one_is_kept_for_a_while_after_its_last_run(last: Any, *, in_use: bool, kept: bool) -> None:
    found = ApplicationProfile.parse(profile("resnet", last))
    uses = {("team-a", "resnet")} if in_use else set()
    assert (expired_profiles([found], uses, START) == []) is kept


def test_a_namespace_keeps_those_that_ran_last() -> None:
    ages = range(MOST + 2)
    bodies = [profile(f"run-{n}", START - timedelta(seconds=n)) for n in ages]
    bodies.append(profile("other", START - timedelta(days=1), namespace="team-b"))
    found = expired_profiles(
        map(ApplicationProfile.parse, bodies), {("team-a", f"run-{MOST}")}, START
    )
    assert [one.spec.application for one in found] == [f"run-{MOST + 1}"]


async def test_those_of_jobs_and_pods_that_exist_stay() -> None:
    bodies = [profile(name) for name in ("resnet", "Pod/serve-1", "gone")]
    kube: Any = FakeKube(*bodies)
    state = a_state(*bodies, job_body(application="resnet"))
    state.apply_pod(claiming_pod_body())
    state.now = lambda: START
    async with running(ProfileExpiry(kube, state).run()):
        await until(lambda: kube.writes)
    assert [(verb, name) for verb, name, _ in kube.writes] == [("delete", "gone")]
