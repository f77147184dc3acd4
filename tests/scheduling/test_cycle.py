"""One scheduling cycle from queue to placements, under policies good, bad and mad."""

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partita.scheduling.cycle import Cycle
from partita.scheduling.cycle_result import placements_of
from partita.scheduling.policy_runner import WaitingRule
from partita.scheduling.reasons import Reason, WaitingReason
from partita_policies import Objective, Placement, Snapshot
from partita_policies.fifo import FIFO
from scheduling.cycles import NOW, Decide, World, first_fit, reasons, runner, started
from support.builders import (
    DELETING,
    GIB,
    a_partition,
    allocation,
    job_body,
    namespace_body,
    server_body,
    take,
)


class TestPlacing:
    async def test_what_fits_starts_and_the_rest_says_why_not(self):
        world = World()
        for name in ("one", "two", "three"):
            world.submit(name, 16)
        result = await world.cycle()
        assert started(result) == ["one", "two"]
        assert reasons(result) == {"three": Reason.INSUFFICIENT_MEMORY}
        assert [job.id for job in result.order] == ["uid-one", "uid-two", "uid-three"]
        assert result.answer is not None
        assert result.answer.policy == "fifo"
        assert [p.job for p in placements_of(result)] == ["uid-one", "uid-two"]

    async def test_the_policy_sees_the_objective_of_its_partition(self):
        seen = []
        world = World(objective="Packing", decide=lambda snapshot: seen.append(snapshot) or [])
        world.submit("one")
        await world.cycle()
        assert seen[0].objective is Objective.PACKING

    async def test_what_is_given_back_in_the_same_write_counts_as_free(self):
        ledger = {"claim-old": allocation("old", memory=40 * GIB)}
        world = World(server_body(allocations=ledger), quotas=[{"namespace": "team-a", "jobs": 1}])
        world.submit("new", 8)
        blocked = await world.cycle()
        assert blocked.why["uid-new"].message == "1 of 1 jobs of namespace team-a run already"
        world.released = {"shared-0": {"claim-old"}}
        assert started(await Cycle(
            world.partition, world.state, waiting=world.waiting, released=world.released,
            memory=world.memory, now=NOW,
        ).run()) == ["new"]  # fmt: skip

    async def test_namespaces_that_are_not_served_are_told_so(self):
        world = World(allowedNamespaces={"matchLabels": {"gpus": "yes"}})
        take(world.state, namespace_body("team-b", gpus="yes"))
        take(world.state, namespace_body("team-a"))
        world.submit("no")
        world.submit("nowhere", namespace="unknown")
        world.submit("yes", namespace="team-b")
        result = await world.cycle()
        assert started(result) == ["yes"]
        assert set(reasons(result).values()) == {Reason.NAMESPACE_NOT_ALLOWED}
        assert result.why["uid-no"].message == (
            "partition shared does not serve namespace team-a: label the namespace as "
            "spec.allowedNamespaces asks, or use another partition"
        )

    async def test_a_quota_that_the_cycle_itself_uses_up_is_the_reason(self):
        world = World(quotas=[{"namespace": "team-a", "memory": "16Gi"}])
        for name in ("one", "two", "three"):
            world.submit(name, 8)
        result = await world.cycle()
        assert started(result) == ["one", "two"]
        assert result.why["uid-three"].message == (
            "16.0 GiB of 16.0 GiB of namespace team-a are allocated already, and this needs 8.0 GiB"
        )
        assert result.left.jobs == ()  # room for it would not let it start

    async def test_a_job_suspended_while_the_policy_thinks_is_not_started(self):
        world = World()
        job = world.submit("one")

        def suspends(snapshot: Snapshot) -> list[Placement]:
            world.state.apply_job(job_body("one", suspend=True))
            return first_fit(snapshot)

        world.memory.runner = runner(suspends)
        result = await world.cycle()
        assert (started(result), world.memory.runner.failure) == ([], "")
        assert job.id in result.why

    async def test_a_gpu_that_goes_while_the_policy_thinks_breaks_nothing(self):
        world = World(server_body(), server_body("shared-1"))
        world.submit("one")
        world.submit("two", 60)

        def loses(snapshot: Snapshot) -> list[Placement]:
            world.report("shared-0", conditions={"Ready": "False"})
            return first_fit(snapshot)

        world.memory.runner = runner(loses)
        result = await world.cycle()
        assert (started(result), world.memory.runner.failure) == ([], "")
        assert reasons(result)["one"] is Reason.POLICY_WAITS
        assert result.allocated.keys() == {"shared-1"}

    async def test_without_a_ready_gpu_nobody_is_asked(self):
        world = World(server_body(conditions={"Ready": "False"}))
        world.submit("one")
        result = await world.cycle()
        assert (result.answer, reasons(result)) == (None, {"one": Reason.NO_GPU_READY})


class TestTheRuleOfAPolicy:
    async def test_a_job_that_sjf_does_not_let_share_a_gpu_learns_the_rule(self):
        world = World()
        world.memory.runner = runner(name="sjf", parameters={"exclusive": True})
        for name in ("one", "two"):
            world.submit(name, duration=60.0)
        result = await world.cycle()
        assert started(result) == ["one"]
        assert result.why["uid-two"] == WaitingReason(
            Reason.POLICY_WAITS,
            "it would fit, but policy sjf starts one job per GPU (its parameter exclusive is true)",
        )

    async def test_the_fallback_s_rule_is_reported_where_it_decided(self, monkeypatch):
        monkeypatch.setattr(FIFO, "waiting_reason", "starts one job a day", raising=False)
        monkeypatch.setattr(FIFO, "decide", lambda *_: [])
        world = World()
        world.memory.runner = runner(lambda _: 1 / 0, fallback="fifo")
        world.submit("one")
        result = await world.cycle()
        assert "policy fifo starts one job a day" in result.why["uid-one"].message


class TestBadPolicies:
    @pytest.mark.parametrize(
        ("decide", "failure"),
        [
            (lambda _: None, "policy fifo raised TypeError: 'NoneType' object is not iterable"),
            (lambda _: [42], "policy fifo answered 42, not a Placement of a job's id and a tuple"),
            (lambda _: [Placement(["x"], ("shared-0",))], "policy fifo answered Placement("),
            (lambda _: [Placement("uid-one", "shared-0")], "policy fifo answered Placement("),
            (lambda _: iter(lambda: Placement("x", ()), None), "more placements than there are"),
            (
                lambda _: [Placement("nobody", ("shared-0",))],
                "broke a rule: there is no job nobody",
            ),
        ],
    )
    async def test_the_fallback_decides_and_it_is_told(self, decide: Decide, failure: str):
        world = World(decide=decide)
        world.submit("one")
        result = await world.cycle()
        assert started(result) == ["one"]
        assert result.answer is not None
        assert failure in result.answer.failure
        assert failure in world.memory.runner.failure
        assert (world.memory.runner.cycles, world.memory.runner.fallbacks) == (1, 1)

    async def test_rejected_counts_the_placements_that_break_a_rule(self):
        world = World(decide=lambda _: [Placement("a", ()), Placement("b", ())])
        world.submit("one")
        world.submit("two")
        await world.cycle()
        assert world.memory.runner.rejected == 2


class TestMeanwhile:
    async def test_a_job_that_turns_out_to_be_allocated_is_not_placed_again(self):
        """The answer to an earlier allocation was lost; the watch tells while the policy thinks."""

        def tell(_: Snapshot) -> list[Placement]:
            entry = allocation("one", namespace="team-a", memory=8 * GIB)
            world.report("shared-0", allocations={"claim-one": entry})
            return [Placement("uid-one", ("shared-1",))]

        world = World(server_body(), server_body("shared-1"), decide=tell)
        world.submit("one")
        world.submit("two")
        result = await world.cycle()
        assert started(result) == []
        assert reasons(result) == {"two": Reason.POLICY_WAITS}
        assert [job.id for job in result.order] == ["uid-two"]


class TestShadows:
    async def test_they_are_counted_and_change_nothing(self):
        world = World(decide=first_fit)
        world.memory.runner = runner(first_fit, shadow=("sjf", "tetris", "no-such-policy"))
        for name, memory in (("one", 30), ("two", 20), ("three", 8)):
            world.submit(name, memory)
        result = await world.cycle()
        assert started(result) == ["one", "three"]
        assert result.snapshot is not None
        await world.memory.runner.run_shadows(result.snapshot, placements_of(result))
        counts = world.memory.runner.shadow_counts
        assert [c.cycles for c in counts.values()] == [1, 1, 1]
        assert counts["tetris"].placements > 0
        assert counts["no-such-policy"].failures == 1
        assert "no-such-policy" in counts["no-such-policy"].message
        assert "no-such-policy" in world.memory.runner.problem

    async def test_what_aging_started_is_not_held_against_them(self):
        world = World(policy={"maxBypasses": 1})
        world.memory.runner = runner(shadow=("fifo",))
        world.submit("aged", 8)
        world.memory.aging.bypasses["uid-aged"] = 99
        world.submit("other", 8)
        result = await world.cycle()
        assert set(started(result)) == {"aged", "other"}
        assert result.snapshot is not None
        await world.memory.runner.run_shadows(result.snapshot, placements_of(result))
        assert world.memory.runner.shadow_counts["fifo"].agreed == 1


actions = st.sampled_from(["submit", "end", "fault", "recover", "scale", "quota", "priority"])
SHAPES = [{}, {"alone": True}, {"slots": 5}, {"clients": 30}, {}, {}]


def happen(world: World, action: str, n: int, job: str) -> None:
    server = f"shared-{n % 2}"
    match action:
        case "submit":
            world.submit(job, 4 * n, namespace=f"team-{n % 3}", **SHAPES[n])
        case "priority":
            world.submit(job, 4 * n, priority=n)
        case "end":
            world.end(*sorted(world.running(server))[: n + 1])
        case "fault":
            world.report(server, conditions={"Ready": "True", "Faulted": "True"})
        case "recover":
            world.report(server, conditions={"Ready": "True", "Faulted": "False"})
        case "scale":
            world.report(server, metadata=DELETING if n % 2 else {})
        case "quota":
            quota = {"namespace": "team-0", "memory": f"{n + 1}Gi"}
            world.partition = a_partition(
                preemption="LowerPriority", sharing={"memoryReservePercent": 0}, quotas=[quota]
            )


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(actions, st.integers(0, 5)), max_size=14), st.data())
async def test_no_sequence_of_events_breaks_an_invariant(events, data):
    """`World.check` holds the invariants after each cycle, whatever the policy answers."""

    def mad(snapshot: Snapshot) -> list[Placement]:
        ids = [job.id for job in snapshot.jobs] + ["nobody"]
        gpus = [gpu.id for gpu in snapshot.gpus] + ["nowhere"]
        return [
            Placement(data.draw(st.sampled_from(ids)), (data.draw(st.sampled_from(gpus)),))
            for _ in range(data.draw(st.integers(0, len(snapshot.jobs))))
        ]

    world = World(server_body(memory="20Gi"), server_body("shared-1"), preemption="LowerPriority")
    decide_directly(world, mad)
    for step, (action, n) in enumerate(events):
        happen(world, action, n, f"job-{step}")
        ready = {
            s.metadata.name: set(s.status.allocations)
            for s in world.state.servers_of("shared")
            if s.metadata.deletion_timestamp is None and not s.status.holds("Faulted")
        }
        result = await world.cycle()
        for job, where in result.placed:
            assert set(where) <= ready.keys()
            assert len(where) == job.gpus
        for preemption in result.preemptions:
            for victim in preemption.victims:
                assert victim.priority < preemption.job.priority
        everyone = {job.id for job, _ in result.placed} | result.why.keys()
        assert {job.id for job in result.order} <= everyone
        assert set(world.waiting) <= result.why.keys()


def decide_directly(world: World, decide: Decide) -> None:
    """Let a policy decide without a thread: Hypothesis draws in its own alone."""

    async def ask(snapshot: Snapshot, _: float) -> list[Placement]:
        return list(decide(snapshot))

    world.memory.runner._charge = SimpleNamespace(ask=ask, problem="", rule=WaitingRule())
