"""The CUDA driver API by ctypes, in a program beside the fake GPU's own libcuda.so.1."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from gpu.fake import MIB, FakeGPUs, uuid_of
from partita.agent.errors import CUDAError
from partita.agent.gpu.cuda_driver import CUDADriver
from support.imports import imported
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


def test_memory_is_used_in_a_context_and_errors_have_their_code_and_name(gpus: FakeGPUs):
    script = f"""
found = {{"invisible": error_of(driver.device, "GPU-other")}}
found["without context"] = error_of(driver.memory)
with driver.context(driver.device({UUID!r})):
    before = driver.memory()
    address = driver.allocate(6 << 30)  # more than 32 bits
    during = driver.memory()
    driver.free(address)
    found["memory"] = [before, during, driver.memory()]
    found["too much"] = error_of(driver.allocate, {TOTAL + 1})
print(json.dumps(found))
"""
    assert said(gpus, script) == {
        "invisible": [101, f"GPU-other is not visible (visible: {UUID})"],
        "without context": [201, "cuMemGetInfo_v2: CUDA_ERROR_INVALID_CONTEXT"],
        "memory": [[TOTAL, TOTAL], [TOTAL - (6 << 30), TOTAL], [TOTAL, TOTAL]],
        "too much": [2, "cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY"],
    }


def test_a_missing_library_is_an_error_of_cuda(tmp_path: Path):
    with pytest.raises(CUDAError, match="cannot be loaded"):
        CUDADriver(str(tmp_path / "libcuda.so.1"))


def test_it_needs_only_the_standard_library():
    loaded = imported("import partita.agent.gpu.cuda_driver")
    assert not loaded & {"pydantic", "kubernetes", "aiohttp", "structlog", "pynvml", "kopf"}
