"""What happens to a claim, from its state alone."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partita.claims.claim_lifecycle import (
    CLEARED_WITHIN,
    TRIED_WITHIN,
    ClaimContext,
    ClaimPlan,
    Eviction,
    plan_claim,
)
from partita.constants import ALLOCATION_GATE, DRIVER
from partita.models import Allocation
from partita.models.quantities import format_time
from partita.scheduling.reasons import Reason
from partita.store.claim_view import ClaimAllocation
from support.builders import START, at, pod_status
from support.claims import (
    a_claim,
    a_claiming_pod,
    claim_allocation_body,
    claim_entry,
    claim_request,
)

NOW = at(1)
ALLOCATED = {"allocation": claim_allocation_body()}
RESERVED = {**ALLOCATED, "reservedFor": [{"resource": "pods", "uid": "uid-serve-1"}]}
ENDED = pod_status("Succeeded", started=START, finished=START)
ENTRY = Allocation.model_validate(claim_entry())
LEDGER = {"shared-0": ENTRY}
TWO = {"shared-0": ENTRY, "shared-1": ENTRY}
GOING = {"deletionTimestamp": "2026-01-01T12:00:30Z"}
DRAINED = Eviction("Drained", "shared-0 is drained")


def plan(
    *pods: Any, claim: Any = None, now: Any = NOW, gone: bool = False, **context: Any
) -> ClaimPlan:
    around = ClaimContext(pods=pods, **context)
    return plan_claim(None if gone else claim or a_claim(), around, now)


class TestWaiting:
    def test_a_claim_whose_pod_waits_for_nothing_else_is_offered(self) -> None:
        assert plan(a_claiming_pod()).wants_gpu
        assert plan(a_claiming_pod(gates=(ALLOCATION_GATE,))).wants_gpu

    @pytest.mark.parametrize(
        ("pod", "claim"),
        [
            (a_claiming_pod(phase="Succeeded"), None),
            (a_claiming_pod(metadata=GOING), None),
            (a_claiming_pod(), a_claim(metadata=GOING)),
            (a_claiming_pod(gates=(ALLOCATION_GATE, "kueue.x-k8s.io/admission")), None),
        ],
        ids=["ended", "ending", "claim deleted", "not admitted yet"],
    )
    def test_others_need_nothing(self, pod: Any, claim: Any) -> None:
        assert plan(pod, claim=claim) == ClaimPlan()

    def test_a_claim_that_cannot_be_served_says_why(self) -> None:
        why = plan(a_claiming_pod(), claim=replace(a_claim(), problem="write count: 1")).why
        assert why is not None
        assert (why.reason, why.message) == (Reason.INVALID_SPEC, "write count: 1")

    def test_two_pods_cannot_share_a_claim(self) -> None:
        pods = [a_claiming_pod(name, claim="mine") for name in ("a", "b")]
        found = plan(*pods, claim=a_claim("mine", pod=""))
        assert not found.wants_gpu
        assert found.why is not None
        assert "Pods a, b share it" in found.why.message

    @pytest.mark.parametrize(
        ("pod", "said"),
        [
            (a_claiming_pod(node="node-1", phase="Running"), "leave spec.nodeName out of the Pod"),
            (a_claiming_pod(terminationGracePeriodSeconds=0), "Write 1 or more"),
        ],
    )
    def test_a_pod_that_may_not_have_a_gpu_is_told_what_to_write(self, pod: Any, said: str) -> None:
        found = plan(pod)
        assert not found.wants_gpu
        assert found.why is not None
        assert said in found.why.message

    def test_a_pod_that_has_started_and_is_in_no_ledger_is_evicted(self) -> None:
        pod = a_claiming_pod(node="node-1", status=pod_status("Running"))
        found = plan(pod, unaccounted=pod)
        assert found.evict == pod
        assert found.eviction is not None
        assert found.eviction.reason == "AllocationCleared"
        going = replace(pod, deleting=True)
        assert plan(going, unaccounted=going) == ClaimPlan()

    def test_a_claim_of_no_pod_says_so(self) -> None:
        found = plan(claim=a_claim("mine", pod="")).why
        assert found is not None
        assert found.reason is Reason.NO_POD
        assert plan().why is None  # its Pod is not known yet, or gone


class TestAllocating:
    def test_the_ledger_comes_before_the_allocation_and_that_before_the_gate(self) -> None:
        pod = a_claiming_pod(gates=(ALLOCATION_GATE,))
        first = plan(pod, allocated=LEDGER)
        assert (first.allocate, first.ungate, first.release) == (True, None, False)
        second = plan(pod, allocated=LEDGER, claim=a_claim(status=ALLOCATED))
        assert (second.allocate, second.ungate) == (False, pod)

    @pytest.mark.parametrize(
        "context", [{"may_start": False}, {"ending": DRAINED}, {"was_allocated": True}]
    )
    def test_what_must_not_start_is_released(self, context: Any) -> None:
        found = plan(a_claiming_pod(), allocated=LEDGER, **context)
        assert (found.allocate, found.release) == (False, True)

    def test_a_pod_that_names_the_claim_by_then_does_not_stop_the_allocation(self) -> None:
        late = a_claiming_pod("late", node="node-1", metadata={"uid": "uid-late"})
        found = plan(a_claiming_pod(), late, allocated=LEDGER)
        assert (found.allocate, found.evict) == (True, None)

    def test_an_entry_for_another_pod_is_released(self) -> None:
        other = a_claiming_pod("serve-2", claim="serve-1-gpu")
        found = plan(other, claim=a_claim(pod=""), allocated=LEDGER)
        assert (found.allocate, found.release) == (False, True)

    @pytest.mark.parametrize(
        ("words", "nominated", "within"),
        [
            ("0/2 nodes are available: 2 Insufficient cpu.", "", timedelta(seconds=10)),
            ("0/2 nodes are available: 2 Insufficient cpu.", "node-1", TRIED_WITHIN),
            ("0/2 nodes are available: 2 cannot allocate all claims.", "", TRIED_WITHIN),
            ("", "", TRIED_WITHIN),
        ],
        ids=["refused", "preempts others", "not tried since the allocation", "not tried"],
    )
    def test_an_unbound_pod_gives_its_gpu_back(
        self, words: str, nominated: str, within: timedelta
    ) -> None:
        scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        conditions = [{**scheduled, "message": words}] if words else []
        status = {"conditions": conditions, "nominatedNodeName": nominated}
        pod = a_claiming_pod(status=status)
        claim = a_claim(status=ALLOCATED)
        early = plan(pod, claim=claim, allocated=LEDGER)
        assert (early.take_back, early.wake) == (False, START + within)
        for now in (START + within, START - 2 * within):  # or the clock was set back
            late = plan(pod, claim=claim, allocated=LEDGER, now=now)
            assert (late.take_back, late.missed, late.release) == (True, True, False)

    def test_an_allocation_that_is_younger_than_its_entry_gets_its_own_time(self) -> None:
        body = {**claim_allocation_body(), "allocationTimestamp": format_time(at(60))}
        claim, now = a_claim(status={"allocation": body}), START + TRIED_WITHIN
        found = plan(a_claiming_pod(), claim=claim, allocated=LEDGER, now=now)
        assert (found.take_back, found.wake) == (False, at(60) + TRIED_WITHIN)

    @pytest.mark.parametrize("pods", [(), (a_claiming_pod(phase="Failed"),)])
    def test_an_allocation_that_no_pod_uses_is_taken_back(self, pods: Any) -> None:
        found = plan(*pods, claim=a_claim(status=ALLOCATED), allocated=LEDGER)
        assert (found.take_back, found.release) == (True, False)

    def test_a_claim_reserved_for_a_pod_that_has_ended_is_taken_back_if_nobody_else_does(
        self,
    ) -> None:
        ended = a_claiming_pod(node="node-1", status=ENDED)
        claim, until = a_claim(status=RESERVED), START + CLEARED_WITHIN
        early = plan(ended, claim=claim, allocated=LEDGER, now=START)
        assert (early.take_back, early.wake) == (False, until)
        late = plan(ended, claim=claim, allocated=LEDGER, now=until)
        assert (late.take_back, late.missed, late.release) == (True, False, False)

    def test_a_claim_that_is_also_reserved_for_others_is_kept(self) -> None:
        ended = a_claiming_pod(node="node-1", status=ENDED)
        others = [*RESERVED["reservedFor"], {"resource": "pods", "uid": "uid-unknown"}]
        claim = a_claim(status={**RESERVED, "reservedFor": others})
        assert plan(ended, claim=claim, allocated=LEDGER, now=at(3600)) == ClaimPlan()


class TestEnding:
    def test_a_pod_is_evicted_and_keeps_its_entry(self) -> None:
        pod = a_claiming_pod(node="node-1", phase="Running")
        found = plan(pod, claim=a_claim(status=RESERVED), allocated=LEDGER, ending=DRAINED)
        assert (found.evict, found.eviction, found.release) == (pod, DRAINED, False)

    def test_a_pod_that_is_being_deleted_is_marked_and_not_evicted(self) -> None:
        pod = a_claiming_pod(node="node-1", phase="Running", metadata=GOING)
        found = plan(pod, claim=a_claim(status=RESERVED), allocated=LEDGER, ending=DRAINED)
        assert found.evict is None
        assert found.marks["shared-0"].release_deadline == at(30)

    def test_an_allocation_in_use_that_the_ledger_lacks_is_written_there_again(self) -> None:
        running = a_claiming_pod(node="node-1", phase="Running")
        found = plan(running, claim=a_claim(status=RESERVED))
        assert (found.restore, found.evict, found.writes) == (running, None, True)
        found = plan(running, claim=a_claim(status=RESERVED), ending=DRAINED)
        assert (found.restore, found.evict) == (None, running)

    def test_a_pod_whose_allocation_was_cleared_keeps_its_entry_until_it_has_ended(self) -> None:
        running = a_claiming_pod(node="node-1", phase="Running")
        found = plan(running, allocated=LEDGER, was_allocated=True)
        assert (found.evict, found.release) == (running, False)
        ended = a_claiming_pod(node="node-1", phase="Failed")
        assert plan(ended, allocated=LEDGER, was_allocated=True).release

    def test_a_deleted_claim_keeps_its_entry_until_its_pod_has_ended(self) -> None:
        running = a_claiming_pod(node="node-1", phase="Running")
        going = a_claim(metadata=GOING)
        assert not plan(running, claim=going, allocated=LEDGER).release
        assert not plan(running, gone=True, allocated=LEDGER).release
        assert plan(gone=True, allocated=LEDGER).release
        assert plan(a_claiming_pod(phase="Succeeded"), gone=True, allocated=LEDGER).release

    def test_another_driver_s_allocation_is_left_alone(self) -> None:
        theirs = a_claim(status={"allocation": claim_allocation_body(driver="gpu.nvidia.com")})
        found = plan(a_claiming_pod(), claim=theirs)
        assert not found.writes
        assert found.why is not None
        assert "gpu.nvidia.com" in found.why.message


class TestSeveralGPUs:
    """A claim gets all of its GPUs or none."""

    WAITS = a_claim(requests=[claim_request(count=2)])
    HAS = replace(WAITS, allocation=ClaimAllocation(DRIVER, ("shared-0", "shared-1")))

    def test_it_is_allocated_once_all_ledgers_have_it(self) -> None:
        assert plan(a_claiming_pod(), claim=self.WAITS, allocated=TWO).allocate

    @pytest.mark.parametrize(
        "ledger",
        [
            LEDGER,
            TWO | {"shared-2": ENTRY},
            TWO | {"shared-1": ENTRY.model_copy(update={"since": at(0.5)})},
            TWO | {"shared-1": ENTRY.model_copy(update={"pod_uid": "uid-serve-2"})},
        ],
        ids=["one lacks", "one too many", "of another cycle", "of another Pod"],
    )
    def test_a_part_of_a_placement_is_released(self, ledger: Any) -> None:
        found = plan(a_claiming_pod(), claim=self.WAITS, allocated=ledger)
        assert (found.allocate, found.release) == (False, True)

    def test_an_entry_that_a_ledger_lost_is_restored_or_the_allocation_is_taken_back(self) -> None:
        running = a_claiming_pod(node="node-1", phase="Running")
        assert plan(running, claim=self.HAS, allocated=LEDGER).restore is running
        assert not plan(running, claim=self.HAS, allocated=TWO).writes
        assert plan(a_claiming_pod(), claim=self.HAS, allocated=LEDGER).take_back
        assert plan(
            a_claiming_pod(), claim=self.WAITS, allocated=LEDGER, was_allocated=True
        ).release


PODS = st.builds(
    a_claiming_pod,
    st.sampled_from(["serve-1", "serve-2"]),
    claim=st.just("serve-1-gpu"),
    node=st.sampled_from(["", "node-1"]),
    phase=st.sampled_from(["Pending", "Running", "Succeeded"]),
    gates=st.sampled_from([(), (ALLOCATION_GATE,), ("kueue.x-k8s.io/admission",)]),
    metadata=st.sampled_from([{}, GOING]),
)
CLAIMS = st.one_of(
    st.none(),
    st.builds(
        a_claim,
        pod=st.sampled_from(["", "serve-1"]),
        requests=st.sampled_from([None, [claim_request(count=2)]]),
        status=st.sampled_from([{}, ALLOCATED, RESERVED]),
        metadata=st.sampled_from([{}, GOING]),
    ),
)


@given(
    claim=CLAIMS,
    pods=st.lists(PODS, max_size=2, unique_by=lambda pod: pod.name),
    ledger=st.sampled_from([{}, LEDGER, TWO]),
    was_allocated=st.booleans(),
    may_start=st.booleans(),
    ending=st.sampled_from([None, DRAINED]),
    seconds=st.sampled_from([1.0, 600.0]),
)
def test_no_plan_lets_two_use_the_same_memory(
    *,
    claim: Any,
    pods: Any,
    ledger: Any,
    was_allocated: bool,
    may_start: bool,
    ending: Any,
    seconds: float,
) -> None:
    context = ClaimContext(pods, ledger, was_allocated, may_start, ending)
    found = plan_claim(claim, context, at(seconds))
    usable = claim is not None and claim.allocation is not None
    runs = any(pod.alive and pod.node for pod in pods)
    # What is in the ledger stays there as long as kubelet could give it to a Pod.
    assert not (found.release and (usable or runs))
    # Only what is in the ledger reaches a claim, and only for the Pod that the ledger names.
    assert not found.allocate or (len(ledger) == claim.count and not usable)
    assert not found.ungate or (ledger and usable and found.ungate.uid == "uid-serve-1")
    assert not (found.wants_gpu and (ledger or usable))
    # What is in use and not in the ledger goes there again, or its Pod ends.
    users = [pod for pod in pods if pod.alive and pod.uid in claim.reserved_for] if usable else []
    if users and not ledger:
        assert found.restore or found.evict or all(pod.deleting for pod in users)
    # A claim that is in use is never taken from its Pod.
    ended = {pod.uid for pod in pods if not pod.alive}
    assert not (found.take_back and (runs or set(claim.reserved_for) - ended))
    # One thing at a time.
    writes = (found.allocate, found.restore, found.take_back, found.ungate, found.evict)
    assert sum(map(bool, writes)) <= 1
