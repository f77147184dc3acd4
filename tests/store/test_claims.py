"""Which Pods a claim has. Owner references are no proof: whoever may write a claim sets them."""

from typing import Any

from partita.store.state import State
from support.builders import server_body
from support.claims import claim_body, claim_entry, claiming_pod_body


def pods_of(state: State, uid: str = "uid-serve-1-gpu") -> list[str]:
    return [pod.name for pod in state.pods_of(uid)]


def state_with(*claims: dict[str, Any], pods: tuple[dict[str, Any], ...]) -> State:
    state = State()
    for pod in pods:
        state.apply_pod(pod)
    for claim in claims:
        state.apply_claim(claim)
    return state


def test_a_claim_made_for_a_pod_is_that_pods_before_the_pods_status_names_it() -> None:
    pod = claiming_pod_body(status={"resourceClaimStatuses": []})
    assert pods_of(state_with(claim_body(), pods=(pod,))) == ["serve-1"]


def test_a_claim_that_a_pod_names_is_that_pods() -> None:
    mine = claim_body("mine", pod="")
    users = [claiming_pod_body(name, claim="mine") for name in ("b", "a")]
    assert pods_of(state_with(mine, pods=(*users,)), "uid-mine") == ["a", "b"]


def test_a_claim_never_has_a_pod_of_another_namespace() -> None:
    forged = claim_body(namespace="team-evil")
    assert pods_of(state_with(forged, pods=(claiming_pod_body(),))) == []


def test_an_owner_that_does_not_control_the_claim_is_not_its_pod() -> None:
    forged = claim_body()
    forged["metadata"]["ownerReferences"][0]["controller"] = False
    pod = claiming_pod_body(status={"resourceClaimStatuses": []})
    assert pods_of(state_with(forged, pods=(pod,))) == []


def test_a_pod_in_the_ledger_stays_the_claims_when_the_claims_owner_is_changed() -> None:
    moved = claim_body(pod="other")
    state = state_with(moved, pods=(claiming_pod_body(), claiming_pod_body("other")))
    state.apply_server(
        server_body("shared-0", status={"allocations": {"uid-serve-1-gpu": claim_entry()}})
    )
    assert pods_of(state) == ["other", "serve-1"]
