"""What is wrong with a claim is said by the claim, and once by an Event of each of its Pods."""

from typing import Any

from partita.claims.claim_reconciler import ClaimReconciler
from partita.claims.claim_statuses import MOST_UNUSED, ClaimStatuses
from partita.kube.errors import InvalidError
from partita.scheduling.cycle_result import Explained
from partita.scheduling.demand import Demand
from partita.scheduling.reasons import Reason, WaitingReason
from partita.times import Times
from support.builders import START, a_state, partition_body
from support.claims import claim_body, claim_request, claiming_pod_body
from support.fake_kube import DOWN, FakeKube, Notes
from support.meanwhile import running
from support.polling import until


class World:
    """Claims that no Pod uses, by name and namespace, and what says so. `bad` is invalid, too."""

    def __init__(self, *names: tuple[str, str]) -> None:
        bad = [claim_request(selectors=[{"cel": {"expression": "true"}}])]
        self.claims = [
            claim_body(name, namespace=namespace, pod="", requests=bad if name == "bad" else None)
            for name, namespace in names
        ]
        self.kube, self.notes = FakeKube(*self.claims), Notes()
        self.kube.times = Times(retry_after=0.01)
        self.state = a_state(partition_body(), *self.claims)
        self.reconciler = ClaimReconciler(self.state, Demand(self.state))
        given: Any = self.kube, self.state, self.reconciler, self.notes
        self.state.now = lambda: START
        self.statuses = ClaimStatuses(*given)

    def look(self) -> None:
        for claim in self.claims:
            self.reconciler.reconcile(claim["metadata"]["uid"], START)


async def test_a_reason_is_written_though_late_and_told_to_pods_that_come_after_it() -> None:
    world = World(("bad", "team-a"))
    kube, notes = world.kube, world.notes
    kube.errors = [DOWN]
    async with running(world.statuses.run()):
        world.look()
        await until(lambda: "annotations" in kube.objects["bad"]["metadata"])
        said = kube.objects["bad"]["metadata"]["annotations"]["partita.dev/status"]
        assert said.startswith("InvalidSpec: ")
        assert "remove selectors" in said
        for number, name in enumerate(("first", "second"), start=1):
            world.state.apply_pod(claiming_pod_body(name, claim="bad"))
            world.look()
            await until(lambda number=number: notes.said == [said] * number)


def test_what_a_cycle_finds_again_is_looked_at_once() -> None:
    world = World(("one", "team-a"))
    queue, claims = world.state.queues.claim_statuses, world.reconciler
    world.look()
    for message, news in (("8 GiB", True), ("8 GiB", False), ("9 GiB", True), ("8 GiB", True)):
        queue.take()
        why = WaitingReason(Reason.QUOTA_EXCEEDED, message)
        claims.explain("uid-one", Explained(why, 3, 0, 1, START))
        assert bool(queue.take()) is news
        if claims.status("uid-one", START) is None and news:
            assert round(queue.due_in() or 0) == 15  # it has just been written
            claims.placed("uid-one")  # so its status says that it has a slice


async def test_a_flood_of_claims_of_one_namespace_does_not_delay_another() -> None:
    many = ((f"many-{n}", "team-a") for n in range(MOST_UNUSED + 20))
    world = World(*many, ("one", "team-b"), ("bad", "team-a"))
    world.kube.times = Times(retry_after=60)
    world.kube.errors = [InvalidError("patch", 422, "its annotations are too long")] * 8
    world.look()
    async with running(world.statuses.run()):
        await until(lambda: len(world.kube.writes) == len(world.claims))
    written = [name for _, name, _ in world.kube.writes]
    assert written.index("one") <= 1
    assert written.index("bad") < len(written) - 20


async def test_a_newer_reason_that_a_slow_write_replaced_is_written_again() -> None:
    world = World(("bad", "team-a"))

    def newer() -> None:
        body = claim_body("bad", namespace="team-a", pod="")
        world.state.apply_claim(world.kube.bump("bad", {"spec": body["spec"]}))
        world.look()
        world.reconciler.status(body["metadata"]["uid"], START)  # its write has ended

    world.kube.meanwhile = newer
    async with running(world.statuses.run()):
        world.look()
        await until(lambda: "NoPod" in str(world.kube.objects["bad"]["metadata"]))
