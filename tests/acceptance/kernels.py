"""Kernels in PTX, which the driver compiles: no CUDA toolkit and no torch.

PTX ISA: https://docs.nvidia.com/cuda/parallel-thread-execution/. Functions of the driver:
https://docs.nvidia.com/cuda/cuda-driver-api/.
"""

from __future__ import annotations

import ctypes
from typing import Any

from partita.agent.gpu.cuda_driver import CUDADriver

__all__ = ["FAULTS", "PTX", "Kernels"]

PTX = """
.version 6.0
.target sm_70
.address_size 64

.visible .entry spin(.param .u64 nanoseconds)
{
    .reg .pred %again;
    .reg .u64 %begin, %now, %length;
    ld.param.u64 %length, [nanoseconds];
    mov.u64 %begin, %globaltimer;
WAIT:
    mov.u64 %now, %globaltimer;
    sub.u64 %now, %now, %begin;
    setp.lt.u64 %again, %now, %length;
    @%again bra WAIT;
    ret;
}

.visible .entry fault_trap(.param .u64 unused)
{
    trap;
}

.visible .entry fault_misaligned(.param .u64 address)
{
    .reg .u64 %address;
    .reg .u32 %value;
    ld.param.u64 %address, [address];
    mov.u32 %value, 1;
    st.global.u32 [%address+1], %value;
    ret;
}

.visible .entry fault_address(.param .u64 unused)
{
    .reg .u64 %address;
    .reg .u32 %value;
    mov.u64 %address, 0x10;
    mov.u32 %value, 1;
    st.global.u32 [%address], %value;
    ret;
}
"""
"""`spin` computes for a time; the others end in a fault: a trap and a misaligned access, which an
SM detects, and an access to an address that is not mapped, which the memory unit detects."""

FAULTS = ("trap", "misaligned", "address")

_MULTIPROCESSORS = 16
"""CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT."""
_GLOBAL = 1
"""CU_MEM_ATTACH_GLOBAL: managed memory that any stream on any device may use."""
_THREADS = 64
"""Threads of a block. Enough to occupy an SM with a kernel that only waits."""


class Kernels(CUDADriver):
    """The driver with what the checks need besides what Partita itself uses."""

    def load(self) -> None:
        """Compile the kernels for the current context."""
        self._module = ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(self._module), PTX.encode())

    def launch(self, name: str, argument: int, blocks: int) -> None:
        """Start a kernel and do not wait for its end."""
        function = ctypes.c_void_p()
        self._call("cuModuleGetFunction", ctypes.byref(function), self._module, name.encode())
        value = ctypes.c_uint64(argument)
        values = (ctypes.c_void_p * 1)(ctypes.addressof(value))
        shape = [ctypes.c_uint(n) for n in (blocks, 1, 1, _THREADS, 1, 1, 0)]
        none = ctypes.c_void_p()
        self._call("cuLaunchKernel", function, *shape, none, values, none)

    def synchronize(self) -> None:
        """Wait for the end of all kernels of the context."""
        self._call("cuCtxSynchronize")

    def multiprocessors(self, device: int) -> int:
        """Return the number of SMs that the process may use."""
        count = ctypes.c_int()
        attribute: Any = ctypes.c_int(_MULTIPROCESSORS)
        self._call("cuDeviceGetAttribute", ctypes.byref(count), attribute, ctypes.c_int(device))
        return count.value

    def allocate_managed(self, size: int) -> int:
        """Allocate managed memory of `size` bytes and fill it on the GPU."""
        address = ctypes.c_uint64()
        self._call(
            "cuMemAllocManaged",
            ctypes.byref(address),
            ctypes.c_size_t(size),
            ctypes.c_uint(_GLOBAL),
        )
        self._call("cuMemsetD8_v2", address, ctypes.c_ubyte(1), ctypes.c_size_t(size))
        self.synchronize()
        return address.value
