"""Where claims and jobs have allocations, whatever changes in the ledgers."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from partita.models import Allocation, GPUServer
from partita.store.allocations import Allocations, users_of
from support.builders import a_server, a_state, allocation, an_allocation, server_body
from support.claims import claim_entry

SERVERS = ("shared-0", "shared-1")
CLAIMS = ("claim-1", "claim-2", "claim-3")
JOBS = ("train", "other")


def entry(claim: str, job: str | None) -> dict[str, Any]:
    """The entry of a claim, whose number is the attempt; without a job, that of another Pod."""
    return allocation(job, attempt=int(claim[-1])) if job else claim_entry()


changes = st.lists(
    st.tuples(
        st.sampled_from(SERVERS),
        st.none() | st.dictionaries(st.sampled_from(CLAIMS), st.sampled_from([None, *JOBS])),
    ),
    max_size=8,
)
"""A GPUServer, and the jobs of the claims in its ledger from then on; None for its deletion."""


@given(changes)
def test_after_any_changes_the_index_is_what_the_ledgers_say(
    drawn: list[tuple[str, dict[str, str | None] | None]],
) -> None:
    servers: dict[str, GPUServer] = {}
    index = Allocations(servers)
    for name, ledger in drawn:
        old = servers.pop(name, None)
        if ledger is not None:
            entries = {claim: entry(claim, job) for claim, job in ledger.items()}
            servers[name] = a_server(name, allocations=entries)
        index.changed(name, old, servers.get(name))
    ledgers = {name: servers[name].status.allocations for name in sorted(servers)}
    entries = [(uid, one) for ledger in ledgers.values() for uid, one in ledger.items()]
    assert index.claims() == {uid for uid, _ in entries}
    for pod in (f"pod-{job}-{attempt}" for job in JOBS for attempt in (1, 2, 3)):
        assert set(index.of_pod(pod)) == {claim for claim, one in entries if one.pod_uid == pod}
    for uid in (*CLAIMS, *(f"uid-{job}" for job in JOBS)):
        of_job = {claim for claim, one in entries if one.job_uid == uid}
        assert set(index.holders(uid)) == (of_job or {uid})
        assert index.holder(uid) == max(of_job, default=uid)
        assert index.has(uid) is bool(of_job or uid in index.claims()) is bool(index.places(uid))
        assert index.of(uid) == {
            name: one
            for name, ledger in ledgers.items()
            for claim, one in sorted(ledger.items())  # of several attempts the last
            if uid in {claim, one.job_uid}
        }


def test_a_change_says_whether_anything_was_released() -> None:
    index = Allocations({})
    one, both = (
        a_server(allocations={claim: entry(claim, "train") for claim in claims})
        for claims in (CLAIMS[:1], CLAIMS[:2])
    )
    steps = [(None, one), (one, both), (both, both), (both, one), (one, None)]
    assert [index.changed("shared-0", *step) for step in steps] == [False, False, False, True, True]


def test_the_users_of_a_ledger_are_jobs_and_claims_of_others() -> None:
    other = Allocation.model_validate(claim_entry())
    found = users_of({"claim-train": an_allocation(), "claim-serve": other})
    assert found == {"uid-train", "claim-serve"}


def test_an_entry_that_changes_its_job_concerns_both_jobs() -> None:
    state = a_state(server_body(allocations={"claim-1": entry("claim-1", "train")}))
    state.queues.jobs.take()
    state.apply_server(server_body(allocations={"claim-1": entry("claim-1", "other")}))
    assert state.queues.jobs.take() == {"uid-train", "uid-other"}
    assert not state.is_allocated("uid-train")
    assert state.holder("uid-other") == "claim-1"
