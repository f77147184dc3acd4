"""Services and notebooks in a cycle: first in the queue, bounded in memory, and waited for by nobody.

The GPUs have 40 GiB each.
"""

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from partita.scheduling.guard import Guard
from partita.scheduling.reasons import Reason
from partita_policies import GPU, Job, Placement, Snapshot
from partita_policies.amounts import GPUAmounts, capacity_of, held_by
from scheduling.cycles import World, first_fit, reasons, started
from support.builders import GIB, allocation, server_body
from support.strategies import jobs, several_gpus


def with_service(memory: int, name: str = "shared-0", **fields: object) -> dict[str, object]:
    service = allocation(f"service-on-{name}", memory=memory << 30, lasting=True, **fields)
    return server_body(name, allocations={f"claim-service-on-{name}": service})


def nothing(_: Snapshot) -> list[Placement]:
    return []


class TestOrder:
    async def test_a_service_starts_before_older_jobs_of_its_priority(self):
        world = World(decide=first_fit)
        world.submit("batch", 30)
        world.submit("service", 20, lasting=True)
        result = await world.cycle()
        assert started(result) == ["service"]
        assert reasons(result) == {"batch": Reason.BEHIND_SERVICES}

    async def test_the_policy_is_never_asked_about_it_and_sees_it_as_running(self):
        seen: list[Snapshot] = []
        world = World(decide=lambda s: (seen.append(s), first_fit(s))[1])
        world.submit("service", 20, lasting=True)
        world.submit("too-large", 25, lasting=True)
        world.submit("batch", 5)
        await world.cycle()
        assert [job.id for job in seen[0].jobs] == ["uid-batch"]
        assert [one.job for one in seen[0].gpus[0].running if one.lasting] == ["uid-service"]

    @pytest.mark.parametrize(("memory", "first"), [(25, ["high"]), (15, ["high", "service"])])
    async def test_a_job_of_a_higher_priority_that_fits_starts_first(
        self, memory: int, first: list[str]
    ):
        world = World(decide=first_fit)
        world.submit("high", memory, priority=5)
        world.submit("service", 20, lasting=True)
        world.submit("same", 5)
        result = await world.cycle()
        assert (started(result), result.again) == (first, 0.0)
        assert started(await world.cycle()) == ["same"]

    async def test_it_starts_before_a_job_of_a_higher_priority_that_fits_nowhere(self):
        world = World(with_service(20), decide=first_fit)
        world.submit("high", 25, priority=5)
        world.submit("service", 5, lasting=True)
        assert started(await world.cycle()) == ["service"]

    async def test_a_policy_that_lets_a_higher_job_wait_does_not_delay_it(self):
        world = World(decide=nothing)
        world.submit("high", 15, priority=5)
        world.submit("service", 20, lasting=True)
        assert started(await world.cycle()) == ["service"]

    async def test_on_several_gpus_it_gets_all_of_them_on_one_node(self):
        where = {"shared-0": "node-1", "shared-1": "node-2", "shared-2": "node-2"}
        gpus = [server_body(name, node=node, mode="Exclusive") for name, node in where.items()]
        world = World(*gpus, sharing={"mode": "Exclusive", "memoryReservePercent": 0})
        world.submit("service", 0, lasting=True, alone=True, gpus=2)
        result = await world.cycle()
        assert [names for _, names in result.placed] == [("shared-1", "shared-2")]


class TestLimit:
    async def test_many_tiny_services_leave_places_to_jobs(self):
        world = World(server_body(maxJobs=4), server_body("shared-1", maxJobs=4))
        for number in range(8):
            world.submit(f"tiny-{number}", 1, lasting=True)
        result = await world.cycle()
        assert len(started(result)) == 5  # 70 % of eight
        assert result.why["uid-tiny-7"].message == (
            "services may have 5 places together (services.percent 70), have 5, and this needs 1: "
            "request less, scale another service down, or raise services.percent"
        )

    async def test_without_a_gpu_that_is_ready_this_is_what_a_service_waits_for(self):
        world = World(server_body(status={"conditions": []}))
        world.submit("service", 1, lasting=True)
        assert list(reasons(await world.cycle()).values()) == [Reason.NO_GPU_READY]

    async def test_other_jobs_have_no_such_limit(self):
        world = World(decide=first_fit, services={"percent": 0})
        world.submit("batch", 40)
        world.submit("service", 1, lasting=True)
        assert started(await world.cycle()) == ["batch"]

    async def test_a_service_of_unknown_size_counts_with_its_whole_gpu(self):
        world = World(server_body(), server_body("shared-1"), services={"percent": 70})
        world.submit("one", 0, lasting=True, alone=True)
        world.submit("two", 0, lasting=True, alone=True)
        result = await world.cycle()
        assert len(started(result)) == 1
        assert list(reasons(result).values()) == [Reason.SERVICES_LIMIT]

    @settings(max_examples=100, deadline=None)
    @given(
        several_gpus, st.lists(jobs("job"), min_size=1, max_size=6), st.integers(0, 100), st.data()
    )
    def test_no_placement_brings_services_above_the_limit(
        self, there: tuple[GPU, ...], waiting: list[Job], percent: int, data: st.DataObject
    ):
        queue = [
            replace(job, id=f"job-{n}", lasting=data.draw(st.booleans()))
            for n, job in enumerate(waiting)
        ]
        guard = Guard(
            there, {job.id: job for job in queue}, quotas={}, held={}, services_percent=percent
        )
        before = held_by(there, lasting=True)
        allowed = capacity_of(there).percent(percent)
        for job in queue:
            where = tuple(gpu.id for gpu in there[: job.gpus])
            if not guard.refusal(job.id, where):
                guard.accept(job, where)
        after = held_by(guard.remaining(), lasting=True)
        most = [max(pair) for pair in zip(before, allowed, strict=True)]
        assert not after.exceeded(GPUAmounts(*most))


def beside_busy(gib: int) -> dict[str, dict]:
    """The ledger of a GPU with a service of so many GiB and a job of 20 GiB."""
    service = allocation("service", memory=gib * GIB, lasting=True)
    return {"claim-service": service, "claim-busy": allocation("busy", memory=20 * GIB)}


class TestWhatNeverEnds:
    async def test_a_job_behind_services_alone_is_told_so_at_once(self):
        world = World(with_service(15), with_service(20, "shared-1"), decide=first_fit)
        world.submit("batch", 30)
        why = (await world.cycle()).why["uid-batch"]
        assert why.reason is Reason.BEHIND_SERVICES
        assert why.message == (
            "needs 30.0 GiB of GPU memory; beside the services, which never end by themselves, "
            "jobs can have at most 25.0 GiB of 40.0 GiB, on shared-0: request less, scale a "
            "service down, or use another partition"
        )

    async def test_the_resource_that_services_have_used_up_is_named(self):
        ledger = {"claim-s": allocation("s", memory=GIB, clients=40, lasting=True)}
        world = World(server_body(allocations=ledger), decide=first_fit)
        world.submit("batch", 1, clients=20)
        assert (await world.cycle()).why["uid-batch"].message == (
            "needs 20 MPS clients; beside the services, which never end by themselves, jobs can "
            "have at most 7 of 47, on shared-0: request less, scale a service down, or use another "
            "partition"
        )

    async def test_a_job_behind_services_and_jobs_waits_for_the_jobs(self):
        world = World(server_body(allocations=beside_busy(15)), decide=first_fit)
        world.submit("batch", 25)
        assert reasons(await world.cycle()) == {"batch": Reason.INSUFFICIENT_MEMORY}
        world.end("busy")
        assert started(await world.cycle()) == ["batch"]

    async def test_a_job_that_must_be_alone_is_told_so_too(self):
        world = World(with_service(15), decide=first_fit)
        world.submit("batch", 0, alone=True)
        assert reasons(await world.cycle()) == {"batch": Reason.BEHIND_SERVICES}

    async def test_a_gpu_is_held_where_the_jobs_beside_a_service_end(self):
        world = World(
            with_service(15, "shared-1"),
            server_body(allocations=beside_busy(10)),
            decide=first_fit,
            policy={"maxBypasses": 1},
        )
        world.submit("aged", 30)
        world.memory.aging.bypasses["uid-aged"] = 99
        result = await world.cycle()
        assert result.why["uid-aged"].message.startswith("shared-0 is held for it")

    @settings(max_examples=60, deadline=None)
    @given(
        st.lists(st.integers(0, 28), min_size=1, max_size=3),
        st.lists(st.tuples(st.integers(1, 40), st.booleans()), min_size=1, max_size=6),
    )
    @example([0, 0], [(17, True), (40, True), (1, True), (40, False)])
    async def test_no_reservation_waits_for_a_service(
        self, services: list[int], waiting: list[tuple[int, bool]]
    ):
        """Whatever has GPUs held starts, if the jobs that end do so; they have turns."""
        servers = [
            with_service(memory, f"shared-{n}") if memory else server_body(f"shared-{n}")
            for n, memory in enumerate(services)
        ]
        world = World(*servers, policy={"maxBypasses": 1, "name": "fifo"})
        for n, (memory, lasting) in enumerate(waiting):
            job = world.submit(f"job-{n}", memory, lasting=lasting)
            world.memory.aging.bypasses[job.id] = 99
        await world.cycle()
        result = await world.cycle()  # holds GPUs for those that the first had no room for
        # Others wait for a GPU that is held for these, and may find a service there later.
        held = {
            uid.removeprefix("uid-")
            for uid, why in result.why.items()
            if "held for it" in why.message
        }
        later: set[str] = set()
        for _ in waiting:
            world.end(*(f"job-{n}" for n, (_, lasting) in enumerate(waiting) if not lasting))
            later |= set(started(await world.cycle()))
        assert held <= later


class TestPreemption:
    @pytest.mark.parametrize("lasting", [True, False])
    async def test_a_service_of_a_higher_priority_ends_jobs_and_services(self, *, lasting: bool):
        ledger = {"claim-low": allocation("low", memory=25 * GIB, lasting=lasting)}
        world = World(
            server_body(allocations=ledger),
            server_body(
                "shared-1", allocations={"claim-full": allocation("full", memory=40 * GIB)}
            ),
            preemption="LowerPriority",
            services={"percent": 100},
        )
        world.submit("full", 40, priority=60)
        world.waiting.clear()
        world.submit("service", 20, priority=50, lasting=True)
        (preemption,) = (await world.cycle()).preemptions
        assert [victim.job for victim in preemption.victims] == ["claim-low"]
