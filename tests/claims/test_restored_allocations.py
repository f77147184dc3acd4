"""An entry that the ledger has lost is written again as it was before."""

from typing import Any

from partita.claims.restored_allocations import restore_entries
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
from support.claims import a_claim, a_claiming_pod, claim_entry
from support.fake_kube import FakeKube

NOW = at(100)


def asks(gib: int, **fields: Any) -> Job:
    return Job("uid-serve-1-gpu", "team-a/serve-1-gpu", "team-a", memory=gib * GIB, **fields)


async def restored(
    wanted: Job | None = None, *, others: int = 0, lost: tuple[str, ...] = ("shared-0",)
) -> tuple[str, list[dict[str, Any]]]:
    """Restore what ledgers have lost of a claim that first got 8 GiB of two GPUs.

    `others` is what another has of the first, in GiB of 40, less the reserve. Returns why that is
    impossible, and the entries.
    """
    uid, first = "uid-serve-1-gpu", "shared-0"
    given = an_allocation(memory=8 * GIB, threadPercent=50, clients=2)
    ledgers: dict[str, dict[str, Any]] = {
        name: {} if name in lost else {uid: claim_entry()} for name in (first, "shared-1")
    }
    if others:
        ledgers[first]["claim-other"] = allocation("other", memory=others * GIB)
    bodies = [server_body(name, allocations=ledger) for name, ledger in ledgers.items()]
    state = a_state(partition_body(), *bodies)
    servers = [state.servers[name] for name in ledgers]
    slices = [slice_parameters(given, server) for server in servers]
    claim = a_claim(status={"allocation": claim_allocation(uid, "gpu", slices, "node-1", at(0))})
    pod = a_claiming_pod(node="node-1", phase="Running")
    kube: Any = FakeKube(*bodies)
    why = await restore_entries(kube, state, claim, pod, asks=wanted, now=NOW)
    found = state.allocated(uid)
    return why, [entry.dump() for name, entry in found.items() if name in lost]


async def test_it_has_what_the_claim_says() -> None:
    why, (entry,) = await restored()
    assert why == ""
    assert entry["memory"] == "8Gi"
    assert (entry["threadPercent"], entry["clients"]) == (50, 2)
    assert (entry["pod"], entry["lasting"]) == ("serve-1", True)
    assert "grownSince" not in entry


async def test_a_slice_that_was_raised_after_out_of_memory_stays_so() -> None:
    why, (entry,) = await restored(asks(12, thread_percent=50))
    assert (why, entry["memory"]) == ("", "12Gi")
    assert entry["grownSince"] == format_time(NOW)


async def test_where_only_the_first_amount_has_room_it_gets_that() -> None:
    why, (entry,) = await restored(asks(12), others=28)
    assert (why, entry["memory"]) == ("", "8Gi")


async def test_it_never_gets_less_than_the_claim_says() -> None:
    _, (entry,) = await restored(asks(4))
    assert entry["memory"] == "8Gi"
    _, (entry,) = await restored(asks(8))
    assert "grownSince" not in entry


async def test_of_several_gpus_all_are_restored_or_none() -> None:
    why, entries = await restored(lost=("shared-0", "shared-1"))
    assert (why, [entry["memory"] for entry in entries]) == ("", ["8Gi", "8Gi"])
    assert [entry["storesUsage"] for entry in entries] == [True, False]
    why, entries = await restored(others=35, lost=("shared-0", "shared-1"))
    assert "GPUServer shared-0 has no room for it any more" in why
    assert entries == []
