"""The CUDA driver API by ctypes, against a library that keeps its arguments' sizes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from partita.agent.cuda_driver import CUDADriver, MemoryInfo
from partita.agent.errors import CUDAError

UUID = "GPU-01020304-0506-0708-090a-0b0c0d0e0f10"
TOTAL = 80 << 30
SOURCE = """
#include <stddef.h>
#include <string.h>
typedef unsigned long long u64;
static u64 used;
static int contexts;
int cuInit(unsigned flags) { return flags ? 1 : 0; }
int cuDriverGetVersion(int *version) { *version = 13040; return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = 7; return ordinal ? 101 : 0; }
int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
    for (int i = 0; i < 16; i++) uuid[i] = i + 1;
    return device == 7 ? 0 : 101;
}
int cuDevicePrimaryCtxRetain(void **context, int device) {
    contexts++;
    *context = &used;
    return device == 7 ? 0 : 101;
}
int cuDevicePrimaryCtxRelease_v2(int device) { contexts--; return device == 7 ? 0 : 101; }
int cuCtxSetCurrent(void *context) { return context == &used ? 0 : 201; }
int cuMemGetInfo_v2(size_t *free, size_t *total) {
    *total = 80ull << 30;
    *free = *total - used;
    return contexts ? 0 : 201;
}
int cuMemAlloc_v2(u64 *address, size_t size) {
    if (used + size > 80ull << 30) return 2;
    used += size;
    *address = 0x7f0000000000ull;
    return 0;
}
int cuMemFree_v2(u64 address) { used = 0; return address == 0x7f0000000000ull ? 0 : 1; }
int cuGetErrorName(int code, const char **name) {
    *name = "CUDA_ERROR_OUT_OF_MEMORY";
    return code == 2 ? 0 : 1;
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cuda")
    (folder / "cuda.c").write_text(SOURCE)
    command = ["gcc", "-shared", "-fPIC", "-o", folder / "libcuda.so.1", folder / "cuda.c"]
    subprocess.run(command, check=True)
    return folder / "libcuda.so.1"


@pytest.fixture
def driver(library: Path) -> CUDADriver:
    driver = CUDADriver(str(library))
    driver.initialize()
    return driver


def test_memory_is_allocated_and_freed_in_a_context(driver: CUDADriver):
    assert driver.version() == 13040
    with driver.context(driver.device(UUID)):
        address = driver.allocate(6 << 30)  # more than 32 bits
        assert driver.memory() == MemoryInfo(free=TOTAL - (6 << 30), total=TOTAL)
        driver.free(address)
        assert driver.memory() == MemoryInfo(free=TOTAL, total=TOTAL)
    with pytest.raises(CUDAError) as raised:
        driver.memory()
    assert raised.value.code == 201


def test_an_error_has_its_code_and_its_name(driver: CUDADriver):
    with driver.context(driver.device(UUID)), pytest.raises(CUDAError) as raised:
        driver.allocate(TOTAL + 1)
    assert raised.value.code == 2
    assert str(raised.value) == "cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY"


def test_a_gpu_that_is_not_visible_is_named_with_those_that_are(driver: CUDADriver):
    with pytest.raises(CUDAError, match=f"GPU-other is not visible .visible: {UUID}."):
        driver.device("GPU-other")


def test_a_missing_library_is_an_error_of_cuda(tmp_path: Path):
    with pytest.raises(CUDAError, match="cannot be loaded"):
        CUDADriver(str(tmp_path / "libcuda.so.1"))


def test_it_needs_only_the_standard_library():
    script = "import sys, partita.agent.cuda_driver; print(*sys.modules)"
    command = [sys.executable, "-c", script]
    loaded = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    packages = {name.partition(".")[0] for name in loaded} - set(sys.stdlib_module_names)
    assert not packages & {"pydantic", "kubernetes", "aiohttp", "structlog", "pynvml", "kopf"}
