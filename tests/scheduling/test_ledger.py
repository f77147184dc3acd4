"""The ledger: its sum is the sum of its records, and repeating a change changes nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partita.models import Allocation, GPUServer
from partita.scheduling.ledger import Held, ServerChange, allocations_after, overcommitted, totals
from partita_policies.amounts import GPUAmounts
from support.builders import GIB, a_server, allocation, an_allocation
from support.patches import merged

allocations = st.builds(
    lambda namespace, attempt, memory, fields: an_allocation(
        namespace=namespace, attempt=attempt, memory=memory * GIB, **fields
    ),
    st.sampled_from(["red", "green"]),
    st.integers(1, 3),
    st.integers(1, 40),
    st.fixed_dictionaries(
        {},
        optional={
            "alone": st.booleans(),
            "threadPercent": st.sampled_from([50, 100]),
            "memoryLimit": st.just("40Gi"),
            "releasingSince": st.just("2026-01-01T00:00:00Z"),
        },
    ),
)
uids = st.sampled_from([f"claim-{n}" for n in range(6)])
ledgers = st.dictionaries(uids, allocations)
changes = st.builds(
    ServerChange, release=st.sets(uids), allocate=st.dictionaries(uids, allocations)
)


def with_ledger(ledger: dict[str, Allocation], name: str = "shared-0") -> GPUServer:
    return a_server(name, allocations={uid: a.dump() for uid, a in ledger.items()})


@given(ledgers, changes)
def test_the_patch_makes_what_was_foreseen_and_again_nothing(ledger, change):
    server = with_ledger(ledger)
    foreseen = allocations_after(server, change)
    patched = GPUServer.parse(merged(server.dump(), change.patch(ledger)))
    assert patched.status.allocations == foreseen
    assert patched.status.model_copy(update={"allocations": {}}) == server.status.model_copy(
        update={"allocations": {}}
    )
    assert allocations_after(patched, change) == foreseen


@given(ledgers, changes, changes)
def test_changes_in_a_row_are_the_last_word_on_each_job(ledger, first, second):
    once = with_ledger(allocations_after(with_ledger(ledger), first))
    after = allocations_after(once, second)
    for uid in {f"claim-{n}" for n in range(6)}:
        last = next(
            (c.allocate.get(uid) for c in (second, first) if uid in c.allocate or uid in c.release),
            ledger.get(uid),
        )
        assert after.get(uid) == last


@given(st.lists(ledgers, max_size=4), st.sets(uids))
def test_a_total_is_the_sum_of_its_records(drawn, released):
    servers = [with_ledger(ledger, f"shared-{n}") for n, ledger in enumerate(drawn)]
    going = {"shared-0": released}
    found = totals(servers, going)
    records = [
        (uid, a)
        for server in servers
        for uid, a in server.status.allocations.items()
        if uid not in going.get(server.metadata.name, ())
    ]
    assert sum(h.amounts.memory for h in found.values()) == sum(a.memory for _, a in records)
    assert sum(h.jobs for h in found.values()) == len({uid for uid, _ in records})
    for namespace, held in found.items():
        assert held.amounts.memory == sum(a.memory for _, a in records if a.namespace == namespace)


def test_a_job_on_two_gpus_is_one_job():
    ledger = {"claim-1": an_allocation(memory=4 * GIB)}
    servers = [with_ledger(ledger, "shared-0"), with_ledger(ledger, "shared-1")]
    assert totals(servers, {}) == {"team-a": Held(GPUAmounts(8 * GIB, places=2, clients=2), jobs=1)}


def test_of_a_new_entry_only_what_is_not_at_its_default_is_written():
    change = ServerChange(release={"claim-1"}, allocate={"claim-2": an_allocation()})
    written = {"claim-1": None, "claim-2": allocation()}
    assert change.patch({"claim-1"}) == {"status": {"allocations": written}}


LIMITS = {"memory": 10 * GIB, "max_jobs": 2, "max_clients": 4}


class TestOvercommited:
    def test_a_full_gpu_is_sound(self):
        ledger = {f"claim-{n}": an_allocation(memory=5 * GIB, clients=2) for n in range(2)}
        assert not overcommitted(ledger, **LIMITS)
        assert not overcommitted({}, **LIMITS)

    def test_a_context_for_each_client_must_fit_too(self):
        ledger = {"a": an_allocation(memory=9 * GIB, clients=2)}
        assert not overcommitted(ledger, **LIMITS, context_memory=GIB // 2)
        assert overcommitted(ledger, **LIMITS, context_memory=GIB)

    @pytest.mark.parametrize("limit", LIMITS)
    def test_each_bound_counts(self, limit: str):
        ledger = {f"claim-{n}": an_allocation(memory=5 * GIB, clients=2) for n in range(2)}
        assert overcommitted(ledger, **{**LIMITS, limit: LIMITS[limit] - 1})

    def test_a_job_that_is_to_be_alone_is(self):
        ledger = {f"claim-{n}": an_allocation(memory=GIB, alone=n == 0) for n in range(2)}
        assert overcommitted(ledger, **LIMITS)


def test_memory_that_grows_may_lose_its_ceiling():
    old, new = an_allocation(memoryLimit="16Gi"), an_allocation(memory=32 * GIB)
    server = with_ledger({"claim-1": old})
    change = ServerChange(grow={"claim-1": new})
    patched = GPUServer.parse(merged(server.dump(), change.patch(server.status.allocations)))
    assert patched.status.allocations == allocations_after(server, change)
