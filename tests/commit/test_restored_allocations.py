"""An entry that the ledger has lost is written again as it was before."""

from typing import Any

from partita.commit.restored_allocations import restore_entry
from partita.models.quantities import format_time
from partita.pods.claim_allocation import claim_allocation, slice_parameters
from partita_policies import Job
from support.builders import (
    GIB,
    a_state,
    allocation,
    an_allocation,
    at,
    partition_body,
    server_body,
)
from support.claims import a_claim, a_claiming_pod
from support.fake_kube import FakeKube

NOW = at(100)


def asks(gib: int, **fields: Any) -> Job:
    return Job("uid-serve-1-gpu", "team-a/serve-1-gpu", "team-a", memory=gib * GIB, **fields)


async def restored(wanted: Job | None = None, *, others: int = 0) -> tuple[str, dict[str, Any]]:
    """Restore the entry of a claim that first got 8 GiB of a GPU of 40 GiB, less the reserve.

    Returns why that is impossible, and the entry.
    """
    ledger = {"uid-other": allocation("other", memory=others * GIB)} if others else {}
    body = server_body(allocations=ledger)
    state = a_state(partition_body(), body)
    given = slice_parameters(
        an_allocation(memory=8 * GIB, threadPercent=50, clients=2), state.servers["shared-0"]
    )
    claim = a_claim(
        status={"allocation": claim_allocation("uid-serve-1-gpu", "gpu", given, "node-1", at(0))}
    )
    pod = a_claiming_pod(node="node-1", phase="Running")
    kube: Any = FakeKube(body)
    why = await restore_entry(kube, state, claim, pod, asks=wanted, now=NOW)
    entry = state.servers["shared-0"].status.allocations.get(claim.uid)
    return why, entry.dump() if entry is not None else {}


async def test_it_has_what_the_claim_says() -> None:
    why, entry = await restored()
    assert why == ""
    assert entry["memory"] == "8Gi"
    assert (entry["threadPercent"], entry["clients"]) == (50, 2)
    assert (entry["pod"], entry["lasting"]) == ("serve-1", True)
    assert "grownSince" not in entry


async def test_a_slice_that_was_raised_after_out_of_memory_stays_so() -> None:
    why, entry = await restored(asks(12, thread_percent=50))
    assert (why, entry["memory"]) == ("", "12Gi")
    assert entry["grownSince"] == format_time(NOW)


async def test_where_only_the_first_amount_has_room_it_gets_that() -> None:
    why, entry = await restored(asks(12), others=28)
    assert (why, entry["memory"]) == ("", "8Gi")
    why, entry = await restored(asks(12), others=35)
    assert "no room" in why
    assert entry == {}


async def test_it_never_gets_less_than_the_claim_says() -> None:
    _, entry = await restored(asks(4))
    assert entry["memory"] == "8Gi"
    _, entry = await restored(asks(8))
    assert "grownSince" not in entry
