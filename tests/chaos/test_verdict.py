"""The verdict: for each thing that must never be, a history in which it is."""

from __future__ import annotations

from typing import Any

import pytest

from chaos.plan import JobPlan
from chaos.story import Story
from chaos.verdict import (
    LeaseView,
    Written,
    lease_views,
    servers_left_over,
    written_without_lease,
    wrong_ends,
)


@pytest.fixture
def story() -> Story:
    return Story()


def a_good_life(story: Story) -> None:
    story.job("Queued")
    story.server("train")
    story.pod("Pending")
    story.pod("Running")
    story.pod("Succeeded")
    story.job("Succeeded", "Succeeded")
    story.server()


def plan(
    name: str = "train", kind: str = "succeeds", end: str = "Succeeded", **more: Any
) -> JobPlan:
    return JobPlan(name, kind, "single", "red", 4, 1.0, end, **more)


def said(problems: Any) -> str:
    return "; ".join(problems)


class TestRecord:
    def test_nothing_is_wrong_with_a_good_life(self, story: Story):
        a_good_life(story)
        assert story.record.problems() == []
        assert story.record.left_over() == []

    def test_a_gpu_allocated_above_its_memory(self, story: Story):
        story.server("one", "two")
        assert "overcommitted" in said(story.record.problems())

    def test_a_gpu_whose_memory_somebody_forgot_has_what_it_had(self, story: Story):
        story.server("train")
        story.server("train", memory="0")
        assert story.record.problems() == []

    def test_a_job_beside_one_that_is_to_be_alone(self, story: Story):
        story.server("one", "two", memory="80Gi", alone=True)
        assert "overcommitted" in said(story.record.problems())

    def test_an_attempt_started_twice(self, story: Story):
        story.server("train")
        story.pod("Failed")
        story.pod(kind="DELETED")
        story.pod(uid="pod-2")
        assert "started twice" in said(story.record.problems())

    def test_an_attempt_of_which_all_traces_were_removed_by_hand(self, story: Story):
        story.server("train")
        story.pod()
        story.record.by_hand.add(story.server())
        story.pod(kind="DELETED")
        story.pod(uid="pod-2")
        assert "started twice" not in said(story.record.problems())

    def test_two_attempts_at_a_time(self, story: Story):
        story.server("train")
        story.pod()
        story.pod(attempt=2, uid="pod-2")
        assert "was started while" in said(story.record.problems())

    def test_a_pod_without_an_allocation(self, story: Story):
        story.pod()
        assert "was allocated []" in said(story.record.problems())

    def test_a_pod_that_outlives_its_allocation(self, story: Story):
        story.server("train")
        story.pod()
        story.server()
        story.pod("Succeeded")
        assert "but was allocated" in said(story.record.problems())

    def test_a_pod_whose_allocation_was_taken_by_hand_may_end(self, story: Story):
        story.server("train")
        story.pod()
        story.record.by_hand.add(story.server())
        story.pod("Failed")
        assert story.record.problems() == []

    def test_an_attempt_that_the_status_has_lost(self, story: Story):
        a_good_life(story)
        story.job("Succeeded")
        assert "says attempts []" in said(story.record.problems())

    def test_an_end_that_was_taken_back(self, story: Story):
        a_good_life(story)
        story.job("Queued", "Succeeded")
        assert "became Queued" in said(story.record.problems())

    def test_an_outcome_that_was_changed(self, story: Story):
        story.job("Queued", "Failed")
        story.job("Queued", "OutOfMemory")
        assert "was Failed and became OutOfMemory" in said(story.record.problems())

    def test_an_allocation_and_a_pod_that_are_left(self, story: Story):
        story.server("train")
        story.pod()
        assert len(story.record.left_over()) == 2

    def test_what_is_forgotten_is_what_is_gone(self, story: Story):
        a_good_life(story)
        story.server("train")
        story.job("Succeeded", kind="DELETED")
        story.record.forget_gone()
        assert story.record.lives("sharedgpujobs") == []
        assert [len(life) for life in story.record.lives("gpuservers")] == [1]
        assert story.record.left_over()


class TestEnds:
    @pytest.mark.parametrize(
        ("job", "status", "problem"),
        [
            (plan(), ("Failed", "Failed"), "must end as Succeeded"),
            (plan(), ("Running", ""), "must end as Succeeded"),
            (plan(), ("Succeeded", "Failed", "Succeeded"), "'Failed': 1"),
            (plan(end="Failed", failures=2), ("Failed", "Failed"), "'Failed': 2"),
            (plan(kind="grows", refusals=1), ("Succeeded", "Succeeded"), "'OutOfMemory': 0"),
            (plan(kind="deleted", end="Gone"), ("Running", ""), "must end as Gone"),
            (plan(kind="too-large", end="Queued"), ("Queued",), "can never fit"),
            (plan(kind="late", end="Failed"), ("Failed", "Failed"), "its deadline"),
            (plan(), ("Succeeded", "NotStarted", "Succeeded"), "must have had"),
            (plan(kind="stuck", end="Failed"), ("Failed", "NotStarted"), "cannot start"),
        ],
    )
    def test_a_wrong_end(self, story: Story, job: JobPlan, status: tuple[str, ...], problem: str):
        story.job(*status)
        assert problem in said(wrong_ends(story.record, [job]))

    def test_a_job_that_is_gone(self, story: Story):
        assert "is gone" in said(wrong_ends(story.record, [plan()]))

    def test_right_ends(self, story: Story):
        a_good_life(story)
        story.job("Queued", name="large", reason="NeverFits")
        story.job("Failed", "NotStarted", "NotStarted", name="never", reason="NotStarted")
        jobs = [
            plan(),
            plan("large", "too-large", "Queued"),
            plan("never", "stuck", "Failed", not_started=2),
            plan("went", "deleted", "Gone"),
        ]
        assert list(wrong_ends(story.record, jobs)) == []


class TestLease:
    VIEWS = (LeaseView(0, "one"), LeaseView(2, ""), LeaseView(3, "two"), LeaseView(20, "one"))
    LASTS = 4.0

    @pytest.mark.parametrize("at", [1, 4.5, 19.5, 23])
    def test_who_has_it_or_may_still_think_so_may_write(self, at: float):
        writes = [Written(at, "one", "PATCH pods")]
        assert not list(written_without_lease(self.VIEWS, writes, self.LASTS))

    @pytest.mark.parametrize("who", ["one", "nobody"])
    def test_a_write_of_one_without_it(self, who: str):
        writes = [Written(15, who, "PATCH pods")]
        assert "without the Lease" in said(written_without_lease(self.VIEWS, writes, self.LASTS))

    def test_a_sleeper_that_writes_when_it_is_woken(self):
        writes = [Written(11.5, "one", "POST pods", woken=11.4)]
        assert "slept past its Lease" in said(written_without_lease(self.VIEWS, writes, self.LASTS))

    def test_a_sleeper_may_ask_for_it_and_write_once_it_has_it_again(self):
        writes = [
            Written(18, "one", "POST leases", woken=17),
            Written(20.1, "one", "POST pods", woken=17),
        ]
        assert not list(written_without_lease(self.VIEWS, writes, self.LASTS))

    def test_what_a_sleeper_wrote_before(self):
        writes = [Written(3, "one", "POST pods", woken=11.4)]
        assert not list(written_without_lease(self.VIEWS, writes, self.LASTS))

    def test_holders_are_read_in_order(self, story: Story):
        story.tell("leases", "l", {"spec": {"holderIdentity": "one"}})
        story.tell("leases", "l", {"spec": {"holderIdentity": "one"}}, kind="DELETED")
        assert [v.holder for v in lease_views(story.record.lives("leases"))] == ["one", ""]


def test_a_gpuserver_and_its_pod_are_left(story: Story):
    story.server()
    labels = {"partita.dev/component": "server"}
    story.tell("pods", "single-0", {"status": {}}, labels=labels)
    assert len(servers_left_over(story.record)) == 2
