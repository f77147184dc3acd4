"""The CUDA driver API by ctypes, in a program beside the fake GPU's own libcuda.so.1."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpu.fake import MIB, FakeGPUs, uuid_of
from partita.agent.errors import CUDAError
from partita.agent.gpu.cuda_driver import CUDADriver
from support.polling import TIMEOUT

UUID = uuid_of(0)
TOTAL = 81920 * MIB
START = """
import json
from partita.agent.gpu.cuda_driver import CUDADriver
from partita.agent.errors import CUDAError
driver = CUDADriver()
driver.initialize()
def error_of(function, *arguments):
    try:
        function(*arguments)
    except CUDAError as error:
        return [error.code, str(error)]
"""


@pytest.fixture
def gpus(fake_gpus: FakeGPUs) -> FakeGPUs:
    fake_gpus.start_driver()
    fake_gpus.add(0, memory=TOTAL)
    return fake_gpus


def said(gpus: FakeGPUs, script: str) -> Any:
    """What a program prints as JSON: the driver's library keeps state in its process."""
    program = gpus.start(sys.executable, "-c", START + script, CUDA_VISIBLE_DEVICES=UUID)
    out, err = program.communicate(timeout=TIMEOUT)
    assert program.returncode == 0, err
    return json.loads(out)


def test_memory_is_allocated_and_freed_in_a_context(gpus: FakeGPUs):
    script = f"""
with driver.context(driver.device({UUID!r})):
    before = driver.memory()
    address = driver.allocate(6 << 30)  # more than 32 bits
    during = driver.memory()
    driver.free(address)
    after = driver.memory()
print(json.dumps([before, during, after, driver.version()]))
"""
    before, during, after, version = said(gpus, script)
    assert before == after == [TOTAL, TOTAL]
    assert during == [TOTAL - (6 << 30), TOTAL]
    assert version == 13000


def test_without_a_context_no_memory_can_be_used(gpus: FakeGPUs):
    code, message = said(gpus, "print(json.dumps(error_of(driver.memory)))")
    assert code == 201
    assert "CUDA_ERROR_INVALID_CONTEXT" in message


def test_an_error_has_its_code_and_its_name(gpus: FakeGPUs):
    script = f"""
with driver.context(driver.device({UUID!r})):
    print(json.dumps(error_of(driver.allocate, {TOTAL + 1})))
"""
    assert said(gpus, script) == [2, "cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY"]


def test_a_gpu_that_is_not_visible_is_named_with_those_that_are(gpus: FakeGPUs):
    _, message = said(gpus, "print(json.dumps(error_of(driver.device, 'GPU-other')))")
    assert message == f"GPU-other is not visible (visible: {UUID})"


def test_a_missing_library_is_an_error_of_cuda(tmp_path: Path):
    with pytest.raises(CUDAError, match="cannot be loaded"):
        CUDADriver(str(tmp_path / "libcuda.so.1"))


def test_it_needs_only_the_standard_library():
    script = "import sys, partita.agent.gpu.cuda_driver; print(*sys.modules)"
    command = [sys.executable, "-c", script]
    loaded = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    packages = {name.partition(".")[0] for name in loaded} - set(sys.stdlib_module_names)
    assert not packages & {"pydantic", "kubernetes", "aiohttp", "structlog", "pynvml", "kopf"}
