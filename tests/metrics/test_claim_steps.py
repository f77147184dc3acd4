"""The steps of claims are counted once, from what the state shows of them."""

from typing import Any

import pytest

from partita.process.metrics.claim_steps import ClaimSteps
from partita.process.metrics.tally import Tally
from partita.store.state import State
from support.builders import a_state, at, gpus_up, partition_body, server_body
from support.claims import claim_body, claim_entry, claiming_pod_body

UID, POD = "uid-serve-1-gpu", "uid-serve-1"
RUNS = {
    "containerStatuses": [
        {"name": "main", "ready": True, "state": {"running": {"startedAt": "2026-01-01T12:00:07Z"}}}
    ],
    "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "serve-1-gpu"}],
}


class World:
    """One claim and its Pod, on a partition with one GPU."""

    def __init__(self) -> None:
        self.state: State = a_state(partition_body(), *gpus_up(server_body()))
        self.tally = Tally()
        self.steps = ClaimSteps(self.state, self.tally)
        self.claim()
        self.state.apply_pod(claiming_pod_body())

    def claim(self, says: str = "", *, deleted: bool = False) -> None:
        notes = {"annotations": {"partita.dev/status": says}} if says else {}
        self.state.apply_claim(claim_body(metadata=notes), deleted=deleted)

    def ledger(self, second: float | None, **entry: Any) -> None:
        """Allocate the claim at this second; None releases it."""
        since = "" if second is None else at(second).isoformat().replace("+00:00", "Z")
        allocations = {} if second is None else {UID: claim_entry(since=since, **entry)}
        self.state.apply_server(server_body(allocations=allocations))

    def start(self) -> None:
        self.state.apply_pod(claiming_pod_body(node="node-1", phase="Running", status=RUNS))

    def see(self, second: float = 0) -> dict[str, float]:
        self.steps.seen(UID, at(second))
        (steps,) = self.tally.claim_steps.collect()
        return {sample.labels["step"]: sample.value for sample in steps.samples}

    def took(self, metric: str) -> list[float | None]:
        value, labels = self.tally.registry.get_sample_value, {"partition": "shared"}
        return [value(f"{metric}_count", labels), value(f"{metric}_sum", labels)]


def test_a_claim_is_allocated_started_and_released() -> None:
    world = World()
    assert world.see() == {}
    world.ledger(5)
    assert world.see(5) == world.see(6) == {"Allocated": 1}
    world.start()
    assert world.see(8) == world.see(9) == {"Allocated": 1, "Started": 1}
    world.claim(deleted=True)
    world.see(20)
    world.ledger(None)
    assert world.see(21) == world.see(22) == {"Allocated": 1, "Started": 1, "Released": 1}
    assert world.took("partita_claim_queue_seconds") == [1, 5.0]
    assert world.took("partita_claim_pod_start_seconds") == [1, 2.0]


def test_a_claim_that_nobody_binds_is_taken_back_and_waits_from_then_on() -> None:
    world = World()
    world.see()
    world.ledger(5)
    world.see(5)
    world.ledger(None)
    assert world.see(15) == {"Allocated": 1, "TakenBack": 1}
    world.ledger(45)
    assert world.see(45) == {"Allocated": 2, "TakenBack": 1}
    assert world.took("partita_claim_queue_seconds") == [2, 5.0 + 30.0]


def test_more_memory_is_growth_and_an_allocation_that_replaces_another_counts_as_two() -> None:
    world = World()
    world.see()
    world.ledger(5)
    world.see(5)
    world.ledger(5, memory="12Gi")
    assert world.see(6) == {"Allocated": 1, "Grown": 1}
    world.ledger(20, memory="12Gi")
    assert world.see(20) == {"Allocated": 2, "Grown": 1, "TakenBack": 1}


@pytest.mark.parametrize("reason", ["InvalidSpec", "NeverFits", "NoPod"])
def test_what_only_a_change_of_yaml_helps_is_refused_once(reason: str) -> None:
    world = World()
    world.see()
    world.claim("InsufficientMemory: wait")
    assert world.see(1) == {}
    for message in ("ask for less", "ask for much less"):
        world.claim(f"{reason}: {message}")
        assert world.see(2) == {"Refused": 1}


def test_what_an_operator_before_has_counted_is_not_counted_again() -> None:
    world = World()
    world.ledger(5)
    world.start()
    assert world.see(60) == {}
    world.ledger(None)
    assert world.see(70) == {"Released": 1}
