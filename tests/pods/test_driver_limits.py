"""The memory limits that the driver sets on the containers of a job."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partita.models import Framework
from partita.models.quantities import MEBI
from partita.pods.allocation import CONTEXT_MEMORY
from partita.pods.environment import environment
from partita.pods.job_pod import build_job_pod, gpu_containers
from pods.builders import GI, a_job, an_allocation, claimed_variables, effective_env

REQUEST, LIMIT = "NVIDIA_GPU_MEMORY_REQUEST", "NVIDIA_GPU_MEMORY_LIMIT"


def containers(*names: str, init: tuple[str, ...] = ()) -> dict:
    spec = {"containers": [{"name": name, "image": "i"} for name in names]}
    if init:
        spec["initContainers"] = [{"name": name, "image": "i"} for name in init]
    return {"spec": spec}


def test_a_limit_above_the_gpu_reports_the_gpu():
    whole = an_allocation(driver_limits=True, memory=40 * GI, total_memory=40 * GI)
    assert environment(Framework.PYTORCH, whole).pytorch_fraction == 1.0


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
