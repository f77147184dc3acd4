"""A small part of the CUDA driver API, called by ctypes.

It needs only Python's standard library and a driver, so that it is cheap to import and runs in any
Pod with a GPU. A call does not return while MPS is wedged. So a caller that needs a deadline runs
it in a process of its own, which can be killed.

Functions and errors: https://docs.nvidia.com/cuda/cuda-driver-api/. The names with `_v2` are those
that NVIDIA's header `cuda.h` gives to the functions of that documentation.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from uuid import UUID

from partita.agent.errors import CUDAError

__all__ = ["LIBRARY", "CUDADriver", "MemoryInfo"]

LIBRARY: Final = "libcuda.so.1"
"""The driver's library. NVIDIA's container runtime mounts it into containers that request the
driver capability `compute`."""
_SUCCESS: Final = 0
_INVALID_DEVICE: Final = 101
_NOT_FOUND: Final = 500
_UUID_BYTES: Final = 16

_INT = ctypes.c_int
_SIZE = ctypes.c_size_t
_CONTEXT = ctypes.c_void_p
_ADDRESS = ctypes.c_uint64
"""`CUdeviceptr`: an unsigned integer as large as a pointer."""


class MemoryInfo(NamedTuple):
    """GPU memory as a program sees it, in bytes."""

    free: int
    total: int


class CUDADriver:
    """The CUDA driver in this process.

    Parameters
    ----------
    library
        Name or path of the driver's library.

    Raises
    ------
    CUDAError
        The library cannot be loaded.
    """

    def __init__(self, library: str = LIBRARY) -> None:
        try:
            self._library = ctypes.CDLL(library)
        except OSError as error:
            raise CUDAError(f"{library} cannot be loaded: {error}") from None

    def initialize(self) -> None:
        """Initialise the API, which all other calls need; under MPS this connects to the server.

        `cuInit`: https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__INITIALIZE.html.

        Raises
        ------
        CUDAError
            There is no usable GPU, or MPS does not accept the client.
        """
        self._call("cuInit", ctypes.c_uint(0))

    def devices(self) -> dict[str, int]:
        """Return the visible GPUs: the handle of each by its UUID, such as `GPU-1b2c...`.

        `cuDeviceGetCount`, `cuDeviceGet`, `cuDeviceGetUuid`:
        https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__DEVICE.html.
        """
        count = _INT()
        self._call("cuDeviceGetCount", ctypes.byref(count))
        found = {}
        for ordinal in range(count.value):
            device, uuid = _INT(), (ctypes.c_ubyte * _UUID_BYTES)()
            self._call("cuDeviceGet", ctypes.byref(device), _INT(ordinal))
            self._call("cuDeviceGetUuid_v2", ctypes.byref(uuid), device)
            found[f"GPU-{UUID(bytes=bytes(uuid))}"] = device.value
        return found

    def device(self, uuid: str) -> int:
        """Return the handle of a GPU.

        Raises
        ------
        CUDAError
            The GPU is not visible to this process.
        """
        devices = self.devices()
        if uuid not in devices:
            visible = ", ".join(devices) or "none"
            raise CUDAError(f"{uuid} is not visible (visible: {visible})", _INVALID_DEVICE)
        return devices[uuid]

    @contextmanager
    def context(self, device: int) -> Iterator[None]:
        """Use the GPU's primary context, which CUDA's runtime uses too, and release it at the end.

        `cuDevicePrimaryCtxRetain`, `cuDevicePrimaryCtxRelease`:
        https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__PRIMARY__CTX.html;
        `cuCtxSetCurrent`: https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__CTX.html.

        Raises
        ------
        CUDAError
            The GPU is busy in its compute mode, lacks memory, or MPS does not accept the client.
        """
        context = _CONTEXT()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), _INT(device))
        try:
            self._call("cuCtxSetCurrent", context)
            yield
        finally:
            self._call("cuDevicePrimaryCtxRelease_v2", _INT(device))

    def memory(self) -> MemoryInfo:
        """Return the GPU memory that the current context sees.

        `cuMemGetInfo`: https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__MEM.html.
        """
        free, total = _SIZE(), _SIZE()
        self._call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return MemoryInfo(free.value, total.value)

    def allocate(self, size: int) -> int:
        """Allocate GPU memory in the current context and return its address.

        `cuMemAlloc`: https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__MEM.html.

        Parameters
        ----------
        size
            Bytes.

        Raises
        ------
        CUDAError
            With the code 2 (CUDA_ERROR_OUT_OF_MEMORY) if the memory is not available.
        """
        address = _ADDRESS()
        self._call("cuMemAlloc_v2", ctypes.byref(address), _SIZE(size))
        return address.value

    def free(self, address: int) -> None:
        """Free GPU memory.

        `cuMemFree`: https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__MEM.html.
        """
        self._call("cuMemFree_v2", _ADDRESS(address))

    def error_name(self, code: int) -> str:
        """Return the name of an error, such as CUDA_ERROR_OUT_OF_MEMORY.

        `cuGetErrorName`: https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__ERROR.html.
        """
        name = ctypes.c_char_p()
        function = self._library.cuGetErrorName
        if function(_INT(code), ctypes.byref(name)) != _SUCCESS or name.value is None:
            return f"CUresult {code}"
        return name.value.decode()

    def _call(self, name: str, *arguments: Any) -> None:
        """Call a function that returns a `CUresult`.

        Raises
        ------
        CUDAError
            It returns another result than CUDA_SUCCESS, or the driver does not have it.
        """
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise CUDAError(f"{name}: this driver does not have it", _NOT_FOUND) from None
        code = function(*arguments)
        if code != _SUCCESS:
            raise CUDAError(f"{name}: {self.error_name(code)}", code)
