"""The verdict on workloads: for each thing that must never be, a history in which it is."""

from __future__ import annotations

from chaos.story import Story
from chaos.workloads import wrong_workloads
from support.claims import claim_allocation_body, claim_body, claim_entry, claiming_pod_body

CLAIM = "uid-web-1-gpu"
WANTED = {("team-a", "web"): 1}


class WorkloadStory(Story):
    """A history of a workload with a claim."""

    def __init__(self) -> None:
        super().__init__("serving")

    def ledger(self, *claims: str, server: str = "serving-0") -> int:
        entries = {claim: claim_entry("web-1-gpu", pod="web-1") for claim in claims}
        status = {"memory": "40Gi", "allocations": entries}
        meta = {"name": server, "uid": f"uid-{server}"}
        spec = {"partition": "serving"}
        return self.take("gpuservers", {"metadata": meta, "spec": spec, "status": status})

    def claim(self, *, allocated: bool = True, kind: str = "MODIFIED") -> None:
        status = {"allocation": claim_allocation_body("serving-0")} if allocated else {}
        self.take("resourceclaims", claim_body("web-1-gpu", pod="web-1", status=status), kind)

    def pod(self, phase: str = "Running", kind: str = "MODIFIED", name: str = "web-1") -> None:
        body = claiming_pod_body(name, labels={"app": "web"}, phase=phase, node="n")
        self.take("pods", body, kind)

    def ends_well(self) -> list[str]:
        return list(wrong_workloads(self.record, WANTED))


def running() -> WorkloadStory:
    story = WorkloadStory()
    story.claim(allocated=False)
    story.ledger(CLAIM)
    story.claim()
    story.pod()
    return story


def test_nothing_is_wrong_with_a_workload_that_runs() -> None:
    story = running()
    assert story.record.problems() == []
    assert story.ends_well() == []
    assert story.record.left_over(workloads=True) == []
    assert story.record.left_over() == ["serving-0 has web-1-gpu allocated"]


def test_a_claim_on_two_gpus_at_once() -> None:
    story = running()
    story.ledger(CLAIM, server="serving-1")
    assert "was allocated on serving-0 and on serving-1" in "".join(story.record.problems())


def test_a_pod_that_runs_without_an_entry() -> None:
    story = WorkloadStory()
    story.claim()
    story.pod()
    assert "web-1 ran from" in "".join(story.record.problems())


def test_a_pod_that_outlives_its_entry_unless_somebody_took_it_by_hand() -> None:
    for by_hand, problems in ((False, 1), (True, 0)):
        story = running()
        version = story.ledger()
        if by_hand:
            story.record.by_hand.add(version)
        story.pod("Succeeded")
        assert len(story.record.problems()) == problems


def test_what_was_before_a_round_is_forgotten() -> None:
    story = running()
    story.ledger(CLAIM)
    story.record.forget_gone()
    assert story.record.problems() == []
    story.ledger()
    story.pod("Succeeded")
    assert len(story.record.problems()) == 1


def test_a_deployment_without_its_replicas() -> None:
    story = running()
    story.pod("Pending")
    assert "team-a/web wants 1 replicas" in story.ends_well()[0]


def test_an_entry_without_a_pod() -> None:
    story = running()
    story.pod(kind="DELETED")
    story.pod(name="web-2")
    assert any("there is no such Pod" in problem for problem in story.ends_well())
    assert story.record.left_over(workloads=True)


def test_claims_and_ledgers_that_do_not_agree() -> None:
    story = running()
    story.claim(allocated=False)
    assert any("and the ledger has it: True" in problem for problem in story.ends_well())
    story = running()
    story.ledger()
    assert any("and the ledger has it: False" in problem for problem in story.ends_well())


def test_a_pod_with_two_allocations() -> None:
    story = running()
    story.ledger(CLAIM, "uid-of-another-claim")
    assert any("has 2 allocations" in problem for problem in story.ends_well())
