"""The memory limits that the driver sets on the containers of a job."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partita.models import Framework, SharingMode
from partita.models.quantities import MEBI
from partita.pods import build_job_pod, gpu_containers
from partita.pods.allocation import CONTEXT_MEMORY
from partita.pods.environment import environment
from pods.builders import GI, a_job, an_allocation, claimed_variables, effective_env

REQUEST, LIMIT = "NVIDIA_GPU_MEMORY_REQUEST", "NVIDIA_GPU_MEMORY_LIMIT"


def limits(**changes) -> dict[str, str]:
    processes = changes.pop("processes", 1)
    allocation = an_allocation(driver_limits=True, **changes)
    return environment(Framework.NONE, allocation, processes=processes).variables


def containers(*names: str, init: tuple[str, ...] = ()) -> dict:
    spec = {"containers": [{"name": name, "image": "i"} for name in names]}
    if init:
        spec["initContainers"] = [{"name": name, "image": "i"} for name in init]
    return {"spec": spec}


def test_the_driver_limits_the_whole_job_and_its_contexts():
    assert (limits()[REQUEST], limits()[LIMIT]) == ("8704", "8704")


def test_the_limit_is_not_divided_by_processes_and_has_a_context_for_each():
    found = limits(processes=4)
    assert found[LIMIT] == str(8 * 1024 + 4 * 512)
    assert found["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=8192M"


def test_a_ceiling_raises_the_limit_alone():
    found = limits(memory_limit=12 * GI)
    assert (found[REQUEST], found[LIMIT]) == ("8704", "12800")
    assert found["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=12288M"


@pytest.mark.parametrize("framework", Framework)
@pytest.mark.parametrize("mode", SharingMode)
def test_without_proof_no_container_gets_the_variables(framework, mode):
    """A container with them is not created on a node whose driver is too old."""
    found = environment(framework, an_allocation(mode=mode)).variables
    assert not {REQUEST, LIMIT} & found.keys()


def test_a_fraction_is_one_of_the_limit_that_cuda_reports():
    found = environment(Framework.JAX, an_allocation(driver_limits=True)).variables
    assert found["XLA_CLIENT_MEM_FRACTION"] == f"{8192 / 8704:.7f}"[:8]


def test_a_limit_above_the_gpu_reports_the_gpu():
    whole = an_allocation(driver_limits=True, memory=40 * GI, total_memory=40 * GI)
    assert environment(Framework.PYTORCH, whole).pytorch_fraction == 1.0


def test_containers_that_run_together_divide_the_memory():
    job = a_job(template=containers("main", "board", init=("fetch",)))
    built = build_job_pod(job, an_allocation(driver_limits=True))
    assert claimed_variables(job, an_allocation(driver_limits=True))[LIMIT] == "4352"
    assert any("divided equally between its 2 containers" in n for n in built.notices)


def test_an_init_container_and_the_main_one_have_the_whole_memory_in_turn():
    job = a_job(template=containers("main", init=("fetch",)))
    built = build_job_pod(job, an_allocation(driver_limits=True))
    assert claimed_variables(job, an_allocation(driver_limits=True))[LIMIT] == "8704"
    assert built.notices == ()


@given(
    memory=st.integers(64, 160 * 1024).map(lambda m: m * MEBI),
    above=st.integers(0, 1024).map(lambda m: m * MEBI),
    processes=st.integers(1, 48),
    number=st.integers(1, 8),
)
def test_all_limits_together_never_exceed_the_allocation(memory, above, processes, number):
    allocation = an_allocation(
        memory=memory, memory_limit=memory + above, total_memory=200 * 1024 * MEBI,
        driver_limits=True,
    )  # fmt: skip
    job = a_job(
        template=containers(*(f"c{i}" for i in range(number))), processes=processes,
        framework="CuPy",
    )  # fmt: skip
    found = effective_env(job, allocation)
    assert len(found) == number == gpu_containers(job.spec.template.unpack())
    contexts = CONTEXT_MEMORY * processes
    assert sum(int(env[REQUEST]) for env in found) * MEBI <= memory + contexts
    assert sum(int(env[LIMIT]) for env in found) * MEBI <= memory + above + contexts
    for env in found:
        assert int(env[REQUEST]) <= int(env[LIMIT])
        assert int(env["CUPY_GPU_MEMORY_LIMIT"]) <= int(env[LIMIT]) * MEBI


@pytest.mark.parametrize("driver", [True, False])
def test_what_the_user_sets_is_replaced_or_removed(driver):
    env = [{"name": REQUEST, "value": "1"}, {"name": LIMIT, "value": "99999"}]
    job, allocation = a_job(env=env), an_allocation(driver_limits=driver)
    built = build_job_pod(job, allocation)
    (variables,) = effective_env(job, allocation)
    found = {name: variables.get(name) for name in (REQUEST, LIMIT)}
    if driver:
        assert found == dict.fromkeys((REQUEST, LIMIT), "8704")
        assert built.overridden == (LIMIT, REQUEST)
    else:
        assert found == dict.fromkeys((REQUEST, LIMIT))
        assert [n for n in built.notices if "is removed: write spec.gpuMemory" in n]
