"""A job whose Pod the API server does not take waits, ever longer; so does its namespace."""

import pytest

from partita.jobs.pod_rejections import PodRejections
from partita.scheduling.reasons import Reason, WaitingReason
from partita.times import Times
from support.builders import START, a_job, at

DENIED = WaitingReason(Reason.POD_FORBIDDEN, "exceeded quota")
BROKEN = WaitingReason(Reason.WEBHOOK_FAILED, "failed calling webhook")
JOB, OTHER, AFAR = a_job(), a_job("other"), a_job("afar", namespace="team-b")


@pytest.fixture
def refusals() -> PodRejections:
    return PodRejections(Times())


def test_each_refusal_doubles_the_wait(refusals: PodRejections):
    now, waits = START, []
    for _ in range(10):
        refusals.note(JOB, DENIED, now)
        found = refusals.of(JOB, now)
        assert found is not None
        assert found.pause is not None
        waits.append((found.pause.until - now).total_seconds())
        now = found.pause.until
        assert refusals.of(JOB, now) is None
    assert waits == [2, 4, 8, 16, 32, 64, 128, 256, 300, 300]


def test_after_the_clock_was_set_back_the_job_does_not_wait(refusals: PodRejections):
    refusals.note(JOB, DENIED, at(3600))
    assert refusals.of(JOB, at(3599)) is None


def test_a_pod_that_was_taken_ends_the_series(refusals: PodRejections):
    refusals.note(JOB, DENIED, START)
    refusals.created(JOB)
    assert refusals.of(JOB, START) is None
    refusals.note(JOB, DENIED, START)
    assert refusals.of(JOB, at(2)) is None


def test_so_does_another_spec(refusals: PodRejections):
    edited = a_job(metadata={"generation": 2})
    refusals.note(JOB, DENIED, START)
    refusals.note(JOB, DENIED, START)
    assert refusals.of(edited, START) is None
    refusals.note(edited, DENIED, START)
    assert refusals.of(edited, at(2)) is None


def test_a_denial_concerns_nobody_else(refusals: PodRejections):
    refusals.note(JOB, DENIED, START)
    assert refusals.of(OTHER, START) is None


def test_a_webhook_that_fails_concerns_the_namespace(refusals: PodRejections):
    refusals.note(JOB, BROKEN, START)
    found = refusals.of(OTHER, START)
    assert found is not None
    assert found.why.message == "failed calling webhook; next try at 12:00:02 UTC"
    assert refusals.of(AFAR, START) is None
    assert refusals.of(OTHER, at(2)) is None


def test_jobs_that_met_it_at_the_same_time_count_once(refusals: PodRejections):
    refusals.note(JOB, BROKEN, START)
    refusals.note(OTHER, BROKEN, at(1))
    assert refusals.of(a_job("third"), at(2)) is None
    refusals.note(JOB, BROKEN, at(2))
    assert refusals.of(a_job("third"), at(5)) is not None
    assert refusals.of(a_job("third"), at(6)) is None


def test_it_is_over_for_all_once_a_pod_was_taken(refusals: PodRejections):
    refusals.note(JOB, BROKEN, START)
    refusals.created(OTHER)
    assert refusals.of(a_job("third"), START) is None
