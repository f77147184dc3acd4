"""GPUs that were chosen for a job are reserved while its Pod is created, for a short time."""

import pytest

from partita.pause import Pause
from partita.scheduling.cycle_result import CycleResult
from partita.scheduling.partition_state import Reservation
from partita_policies import Job
from scheduling.cycles import NOW, World
from support.builders import seconds, server_body

SOON = NOW + seconds(1)


def reserve(world: World, job: Job, gpu: str = "shared-0") -> None:
    world.memory.reserved[job.id] = Reservation(job, (gpu,), Pause(NOW, SOON), "sjf")


@pytest.fixture
def late() -> tuple[World, Job]:
    """A job whose Pod is being created, so that it does not wait, and another that does."""
    world = World(server_body("shared-0"), server_body("shared-1"))
    job = world.submit("late", memory=30)
    del world.waiting[job.id]
    for name in ("first", "second"):
        world.submit(name, memory=30)
    return world, job


def placed(result: CycleResult) -> dict[str, tuple[str, ...]]:
    return {job.name.partition("/")[2]: gpus for job, gpus in result.placed}


async def test_others_get_them_once_the_time_is_over(late: tuple[World, Job]) -> None:
    world, job = late
    reserve(world, job)
    assert placed(await world.cycle()) == {"first": ("shared-1",)}
    assert world.memory.expire_reservations(NOW) == []
    assert [one.job for one in world.memory.expire_reservations(SOON)] == [job]
    assert placed(await world.cycle()) == {"second": ("shared-0",)}


async def test_the_job_gets_them_before_others_once_its_pod_is_there(
    late: tuple[World, Job],
) -> None:
    world, job = late
    reserve(world, job)
    world.waiting[job.id] = job
    result = await world.cycle()
    assert placed(result) == {"late": ("shared-0",), "first": ("shared-1",)}
    assert result.chosen_by(job.id) == "sjf"
    assert not world.memory.reserved


async def test_a_gpu_that_has_room_no_more_is_not_reserved(late: tuple[World, Job]) -> None:
    world, job = late
    reserve(world, job, "shared-2")
    assert placed(await world.cycle()).keys() == {"first", "second"}
