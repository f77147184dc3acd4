"""Which variables a job's containers get, and from what amounts."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partita.models import Framework, SharingMode
from partita.models.quantities import MEBI
from partita.pods.environment import environment
from partita.pods.pytorch_options import limit_allocator
from pods.builders import UUID, an_allocation

MPS_ONLY = "CUDA_MPS_"


@pytest.mark.parametrize("framework", Framework)
def test_mps_variables_are_for_mode_mps_alone(framework):
    for mode in SharingMode:
        names = environment(framework, an_allocation(mode=mode), yields=True).variables
        assert any(n.startswith(MPS_ONLY) for n in names) == (mode is SharingMode.MPS)


@pytest.mark.parametrize("framework", Framework)
def test_a_job_with_a_gpu_to_itself_is_limited_by_nothing(framework):
    found = environment(framework, an_allocation(mode=SharingMode.EXCLUSIVE))
    assert found.variables == {"NVIDIA_VISIBLE_DEVICES": UUID}
    assert found.pytorch_fraction is None


def test_the_memory_limit_names_the_device_by_its_ordinal():
    limit = environment(Framework.NONE, an_allocation()).variables[
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
    ]
    assert limit == "0=8192M"


def test_each_process_gets_its_share_rounded_down_to_whole_mebibytes():
    found = environment(Framework.CUPY, an_allocation(memory=10 * MEBI), processes=3).variables
    assert found["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=3M"
    assert found["CUPY_GPU_MEMORY_LIMIT"] == str(3 * MEBI)


def test_only_one_of_jax_s_two_names_has_a_value():
    """jaxlib refuses to start with both."""
    for oversubscription in (False, True):
        allocation = an_allocation(oversubscription=oversubscription)
        found = environment(Framework.JAX, allocation).variables
        assert found["XLA_CLIENT_MEM_FRACTION"] == ("2" if oversubscription else "0.2")
        assert found["XLA_PYTHON_CLIENT_MEM_FRACTION"] == ""


def test_priority_is_lowered_only_for_a_job_that_yields():
    assert "CUDA_MPS_CLIENT_PRIORITY" not in environment(Framework.NONE, an_allocation()).variables
    yielding = environment(Framework.NONE, an_allocation(), yields=True).variables
    assert yielding["CUDA_MPS_CLIENT_PRIORITY"] == "1"


@pytest.mark.parametrize("framework", Framework)
def test_unified_memory_is_for_tensorflow_and_jax_and_others_are_told(framework):
    found = environment(framework, an_allocation(oversubscription=True))
    had = framework in {Framework.TENSORFLOW, Framework.JAX}
    assert (found.variables.get("TF_FORCE_UNIFIED_MEMORY") == "true") == had
    assert any("not support oversubscription" in n for n in found.notices) == (not had)
    assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" in found.variables


@given(
    total=st.integers(1, 200 * 1024).map(lambda m: m * MEBI),
    share=st.floats(0, 1),
    processes=st.integers(1, 48),
)
def test_no_process_is_given_more_than_its_share(total, share, processes):
    memory = max(MEBI * processes, int(total * share))
    allocation = an_allocation(memory=memory, total_memory=total)
    limit = allocation.process_memory(processes)
    assert limit % MEBI == 0
    assert MEBI <= limit <= memory // processes
    written = Fraction(str(allocation.process_fraction(processes)))
    assert written * total <= min(limit, total)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", "per_process_memory_fraction:0.25"),
        ("backend:native", "backend:native,per_process_memory_fraction:0.25"),
        ("per_process_memory_fraction:0.9", "per_process_memory_fraction:0.25"),
        (
            " a:[256:1,512:2] , per_process_memory_fraction : 1,b:c,",
            "a:[256:1,512:2],b:c,per_process_memory_fraction:0.25",
        ),
    ],
)
def test_the_fraction_joins_the_user_s_allocator_options(options, expected):
    assert limit_allocator(options, 0.25) == expected


@given(st.text())
def test_any_allocator_options_end_in_our_fraction_once(options):
    limited = limit_allocator(options, 0.5)
    assert limited.endswith("per_process_memory_fraction:0.5")
    assert limit_allocator(limited, 0.5) == limited


@pytest.mark.parametrize(
    "changes",
    [
        {"uuids": (), "servers": ()},
        {"servers": ("a", "b")},
        {"attempt": 0},
        {"thread_percent": 0},
        {"memory": 1000},
        {"servers": ("a", "b"), "uuids": ("GPU-1", "GPU-2")},
    ],
)
def test_a_grant_that_cannot_be_carried_out_is_refused(changes):
    with pytest.raises(ValueError):
        an_allocation(**changes)
