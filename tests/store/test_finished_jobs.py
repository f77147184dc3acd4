"""Of finished jobs only records are kept, until anything of them turns up again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from partita.kube.kinds import JOBS
from partita.models import Phase
from partita.models.quantities import format_time
from partita.store.missing import forget_missing
from partita.store.state import State
from store.objects import added, versioned
from support.builders import (
    DELETING,
    START,
    allocation,
    job_body,
    pod_body,
    pod_status,
    server_body,
    take,
)
from support.claims import job_claim_body

TRAIN = "uid-train"


def finished(version: int = 10, *, status: dict[str, Any] | None = None, **given: Any) -> Any:
    """A job whose status says all that there is to say."""
    said = {
        "phase": "Succeeded",
        "observedGeneration": 1,
        "completionTime": format_time(START),
        **(status or {}),
    }
    return versioned(job_body(status=said, **given), version)


def ended(attempt: int = 1) -> Any:
    return pod_body(attempt=attempt, status=pod_status("Succeeded"))


def a_state(*bodies: Any) -> State:
    state = State(archives=True)
    for body in bodies:
        take(state, body)
    return state


def test_a_finished_job_and_its_pods_are_a_record() -> None:
    state = a_state(finished(), ended())
    assert (state.jobs, state.pods, added(state)[0]) == ({}, {}, set())
    record = state.finished.get(TRAIN)
    assert record is not None
    assert (record.key, record.phase, record.expires) == ("team-a/train", "Succeeded", None)
    assert state.finished.counts["shared", "Succeeded"] == 1
    assert list(state.jobs_of("shared")) == []


def test_a_reader_that_shows_jobs_keeps_them() -> None:
    state = State()
    take(state, finished())
    assert TRAIN in state.jobs
    state.archive(TRAIN)
    assert TRAIN in state.jobs


@pytest.mark.parametrize(
    "body",
    [
        finished(status={"phase": "Running"}),
        finished(status={"observedGeneration": 0}),
        finished(status={"completionTime": None}),
        finished(metadata={"annotations": {"partita.dev/retry": "now"}}),
        finished(status={"conditions": [{"type": "Readable", "status": "False"}]}),
    ],
)
def test_a_job_of_which_the_status_may_change_is_kept(body: Any) -> None:
    assert TRAIN in a_state(body).jobs


@pytest.mark.parametrize(
    "left",
    [
        server_body(allocations={"claim-train": allocation()}),
        pod_body(status=pod_status("Running")),
    ],
)
def test_a_job_is_kept_until_nothing_is_left_of_it(left: Any) -> None:
    state = a_state(left, finished())
    state.archive(TRAIN)
    assert TRAIN in state.jobs
    take(state, left, deleted=True)
    state.archive(TRAIN)
    assert TRAIN not in state.jobs
    assert TRAIN in state.finished


def test_a_job_is_kept_until_its_claim_is_being_deleted() -> None:
    state = a_state(finished())
    take(state, job_claim_body())
    take(state, finished())
    state.archive(TRAIN)
    assert TRAIN in state.jobs
    take(state, job_claim_body(metadata=DELETING))
    state.archive(TRAIN)
    assert TRAIN in state.finished
    added(state)
    take(state, job_claim_body(), deleted=True)
    assert added(state)[0] == {TRAIN}
    assert not state.has_leftovers(TRAIN)


def test_an_older_version_changes_nothing() -> None:
    state = a_state(finished(10))
    take(state, finished(9, status={"phase": "Running"}))
    assert (state.jobs, len(state.finished)) == ({}, 1)


def test_a_retry_brings_the_job_back() -> None:
    state = a_state(finished(10, status={"phase": "Failed"}))
    retry = {"annotations": {"partita.dev/retry": "now"}}
    take(state, finished(11, status={"phase": "Failed"}, metadata=retry))
    assert state.jobs[TRAIN].status.phase is Phase.FAILED
    assert not state.finished.counts
    assert added(state)[0] == {TRAIN}


def test_a_deleted_job_leaves_nothing_and_does_not_come_back() -> None:
    state = a_state(finished(10))
    take(state, finished(10), deleted=True)
    take(state, finished(11))
    assert (len(state.finished), state.jobs, dict(state.finished.counts)) == (0, {}, {})


def test_a_job_deleted_during_a_gap_is_forgotten() -> None:
    state = a_state(finished(10))
    assert forget_missing(state, JOBS, {TRAIN}, 20) == 0
    assert forget_missing(state, JOBS, set(), 9) == 0
    assert forget_missing(state, JOBS, set(), 20) == 1
    assert len(state.finished) == 0


def test_its_time_to_live_is_in_the_record() -> None:
    state = a_state(finished(ttlSecondsAfterFinished=60))
    record = state.finished.get(TRAIN)
    assert record is not None
    assert record.expires == START + timedelta(seconds=60)
    assert added(state)[0] == {TRAIN}
