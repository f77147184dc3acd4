"""What to set in a framework on a slice of a GPU."""

import re
from pathlib import Path

import pytest

from partita.models import SharingMode
from partita.models.quantities import parse_memory
from partita.pods.framework_memory import budget_advice, framework_settings, named_frameworks
from partita.pods.memory_errors import VLLM_PROFILING
from pods.builders import an_allocation

PAGE = Path(__file__).parents[2] / "docs/how-to/size-memory.md"
ROW = re.compile(r"\| (\w+) of (\w+) \| (MPS|driver) \| (.+) \|")


def documented() -> list[tuple[str, str, str, list[str]]]:
    rows = (ROW.fullmatch(line) for line in PAGE.read_text().splitlines())
    return [(r[1], r[2], r[3], r[4].split(" | ")) for r in rows if r is not None]


def test_the_page_has_rows() -> None:
    assert len(documented()) >= 8


@pytest.mark.parametrize(("memory", "total", "limit", "written"), documented())
def test_the_numbers_of_the_page_are_those_that_are_set(
    memory: str, total: str, limit: str, written: list[str]
) -> None:
    allocation = an_allocation(
        memory=parse_memory(memory),
        total_memory=parse_memory(total),
        driver_limits=limit == "driver",
    )
    found = {one.framework: one.setting for one in framework_settings(allocation)}
    vllm, jax, rapids = written
    assert found["vLLM"] == f"--gpu-memory-utilization {vllm}"
    assert f"XLA_CLIENT_MEM_FRACTION={jax} " in found["JAX"]
    assert found["PyTorch"].endswith(f":{jax}")
    assert found["RAPIDS"] == f"--rmm-pool-size {rapids}"


def test_a_program_alone_on_its_gpu_needs_nothing() -> None:
    assert framework_settings(an_allocation(mode=SharingMode.EXCLUSIVE)) == ()


def test_processes_of_a_slice_share_it() -> None:
    (vllm, *_) = framework_settings(an_allocation(), 2)
    assert vllm.setting == "--gpu-memory-utilization 0.087"  # (8 / 2 - 0.5) of 40 GiB


@pytest.mark.parametrize(
    ("container", "setting", "named"),
    [
        ({"image": "vllm/vllm-openai:v0.11"}, "", ("vLLM",)),
        ({"image": "a", "command": ["torchrun"], "args": ["t.py"]}, "JAX", ("JAX", "PyTorch")),
        ({"image": "a", "env": [{"name": "XLA_FLAGS"}]}, "None", ("JAX",)),
        ({"image": "nvcr.io/nvidia/tritonserver:25.09-py3", "env": None}, "", ("Triton",)),
        ({"image": "example.org/serve:1", "args": ["--triton"]}, "", ()),
    ],
)
def test_frameworks_are_known_by_what_a_container_names(container, setting, named) -> None:
    assert named_frameworks({"containers": [container]}, setting) == named


def test_a_measurement_that_others_disturbed_is_told_from_asking_for_too_much() -> None:
    assert "--kv-cache-memory-bytes as well" in budget_advice(VLLM_PROFILING, {}, {})
    assert budget_advice("vLLM", {}, {}) == ""
