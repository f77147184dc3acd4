"""The driver's library NVML, typed: the only module that calls pynvml.

A call that the GPU, the driver or pynvml does not support returns None. Other failures are raised
as one of `partita.agent.errors`. All calls block, some of them for long: call them in a thread.

`NVML` below is https://docs.nvidia.com/deploy/nvml-api/.
"""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import pynvml

from partita.agent.errors import GPULostError, NVMLError
from partita.agent.nvml_calls import UNSUPPORTED, call, maybe, number, translated

__all__ = [
    "GPUEvent",
    "GPUEvents",
    "GPUIdentity",
    "GPUProcess",
    "NVMLDevice",
    "close_library",
    "cuda_version",
    "driver_version",
    "gpus",
    "open_library",
]

_ARCHITECTURES: Final = {
    pynvml.NVML_DEVICE_ARCH_KEPLER: "Kepler",
    pynvml.NVML_DEVICE_ARCH_MAXWELL: "Maxwell",
    pynvml.NVML_DEVICE_ARCH_PASCAL: "Pascal",
    pynvml.NVML_DEVICE_ARCH_VOLTA: "Volta",
    pynvml.NVML_DEVICE_ARCH_TURING: "Turing",
    pynvml.NVML_DEVICE_ARCH_AMPERE: "Ampere",
    pynvml.NVML_DEVICE_ARCH_ADA: "Ada",
    pynvml.NVML_DEVICE_ARCH_HOPPER: "Hopper",
    pynvml.NVML_DEVICE_ARCH_BLACKWELL: "Blackwell",
}
_CORES_PER_SM: Final = {
    (6, 0): 64, (6, 1): 128, (6, 2): 128, (7, 0): 64, (7, 2): 64, (7, 5): 64,
    (8, 0): 64, (8, 6): 128, (8, 7): 128, (8, 9): 128, (9, 0): 128, (10, 0): 128, (12, 0): 128,
}  # fmt: skip
"""FP32 cores of an SM by compute capability: CUDA C++ Programming Guide, "Compute Capabilities",
https://docs.nvidia.com/cuda/cuda-c-programming-guide/. One that is missing leaves the SMs out."""

_LANE_BYTES: Final = {
    1: 250_000_000,
    2: 500_000_000,
    3: 984_615_384,
    4: 1_969_230_769,
    5: 3_938_461_538,
    6: 7_562_500_000,
}
"""Bytes per second of one PCIe lane by generation: 2.5 and 5 GT/s with 8 of 10 bits, 8, 16 and
32 GT/s with 128 of 130, 64 GT/s with 242 of 256 bytes (PCI-SIG's base specifications)."""

_KIBI: Final = 1 << 10


def open_library() -> None:
    """Load the library and connect to the driver; each call asks for one of `close_library`.

    Raises
    ------
    NoDriverError
        If there is no driver, or its library is of another version.
    """
    call(pynvml.nvmlInitWithFlags, 0)


def close_library() -> None:
    """Close the library; GPUs that were found before become invalid."""
    with suppress(NVMLError):
        call(pynvml.nvmlShutdown)


def driver_version() -> str:
    """Return the driver's version, such as `580.95.05`."""
    return str(call(pynvml.nvmlSystemGetDriverVersion))


def cuda_version() -> int | None:
    """Return the newest CUDA that the driver serves, such as 13010 for 13.1; None if unknown."""
    return number(pynvml.nvmlSystemGetCudaDriverVersion_v2)


def gpus() -> list["NVMLDevice"]:
    """Return all GPUs that are visible to this process."""
    count: int = call(pynvml.nvmlDeviceGetCount)
    return [NVMLDevice(call(pynvml.nvmlDeviceGetHandleByIndex, index)) for index in range(count)]


@dataclass(frozen=True, slots=True)
class GPUIdentity:
    """What a GPU is."""

    uuid: str
    """As NVML gives it."""
    product: str
    """Such as `NVIDIA A100-SXM4-40GB`."""
    architecture: str
    """Such as `Ampere`; empty where unknown."""
    memory: int
    """Whole memory, bytes."""
    sm_count: int
    """Streaming multiprocessors; 0 where unknown."""
    pcie_bandwidth: int
    """Bytes per second; 0 where unknown."""
    capability: tuple[int, int] | None
    """CUDA compute capability."""
    mig: bool
    """Whether it is in MIG mode."""


@dataclass(frozen=True, slots=True)
class GPUProcess:
    """A process that uses a GPU."""

    pid: int
    """By the node's PIDs."""
    memory: int | None
    """Bytes; None if the driver does not report it."""


@dataclass(frozen=True, slots=True)
class GPUEvent:
    """An event of the driver."""

    xid: int
    """The Xid; 0 for an event of another kind."""


class NVMLDevice:
    """One GPU.

    Parameters
    ----------
    handle
        NVML's.
    """

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._occupancy: _Occupancy | None = None

    @classmethod
    def of(cls, uuid: str) -> "NVMLDevice":
        """Find it by its UUID.

        Raises
        ------
        GPULostError
            If it is not there.
        """
        try:
            return cls(call(pynvml.nvmlDeviceGetHandleByUUID, uuid))
        except GPULostError:
            raise
        except NVMLError as error:
            raise GPULostError(f"GPU {uuid} cannot be found: {error}") from error

    def uuid(self) -> str:
        """Return its UUID."""
        return str(call(pynvml.nvmlDeviceGetUUID, self._handle))

    def identity(self) -> GPUIdentity:
        """Read what it is."""
        handle = self._handle
        architecture = maybe(pynvml.nvmlDeviceGetArchitecture, handle)
        mig = maybe(pynvml.nvmlDeviceGetMigMode, handle)
        capability = maybe(pynvml.nvmlDeviceGetCudaComputeCapability, handle)
        generation = maybe(pynvml.nvmlDeviceGetMaxPcieLinkGeneration, handle)
        width = maybe(pynvml.nvmlDeviceGetMaxPcieLinkWidth, handle)
        return GPUIdentity(
            uuid=self.uuid(),
            product=str(call(pynvml.nvmlDeviceGetName, handle)),
            architecture=_ARCHITECTURES.get(architecture, ""),
            memory=int(call(pynvml.nvmlDeviceGetMemoryInfo, handle).total),
            sm_count=self._sm_count(capability),
            pcie_bandwidth=_LANE_BYTES.get(generation or 0, 0) * (width or 0),
            capability=capability,
            mig=bool(mig and mig[0]),
        )

    def _sm_count(self, capability: tuple[int, int] | None) -> int:
        attributes = maybe(pynvml.nvmlDeviceGetAttributes, self._handle)
        if attributes is not None and attributes.multiprocessorCount:
            return int(attributes.multiprocessorCount)
        cores = maybe(pynvml.nvmlDeviceGetNumGpuCores, self._handle)
        per_sm = _CORES_PER_SM.get(capability) if capability else None
        return cores // per_sm if cores and per_sm else 0

    def processes(self) -> list[GPUProcess]:
        """List the processes that use the GPU, including MPS clients, which NVML lists separately.

        Raises
        ------
        NVMLError
            The driver cannot list them: nothing could be attributed.
        """
        found = {p.pid: p.usedGpuMemory for p in call(_processes, self._handle)}
        for process in maybe(_mps_processes, self._handle) or ():
            known = found.get(process.pid)
            memory = process.usedGpuMemory
            found[process.pid] = memory if known is None else max(known, memory or 0)
        return [GPUProcess(pid, memory) for pid, memory in found.items()]

    def memory_used(self) -> int:
        """Bytes in use, the driver's own included."""
        return int(call(pynvml.nvmlDeviceGetMemoryInfo, self._handle).used)

    def utilization(self) -> int | None:
        """Percent of the last sample period in which a kernel ran."""
        rates = maybe(pynvml.nvmlDeviceGetUtilizationRates, self._handle)
        return None if rates is None else int(rates.gpu)

    def process_utilization(self, since: int) -> tuple[dict[int, int], int] | None:
        """Percent of the SMs by PID, on average, and the time up to which that goes.

        Parameters
        ----------
        since
            Microseconds, as this returned them; samples before are left out.

        Notes
        -----
        None if the driver does not support it. NVML returns "not found" if no sample is newer:
        then nothing has run, and the answer is empty.
        """
        try:
            samples = pynvml.nvmlDeviceGetProcessUtilization(self._handle, since)
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_NOT_FOUND:
                return {}, since
            if error.value in UNSUPPORTED:
                return None
            raise translated(error) from error
        by_pid: dict[int, list[int]] = {}
        for sample in samples:
            if sample.timeStamp > since:
                by_pid.setdefault(int(sample.pid), []).append(min(100, int(sample.smUtil)))
        until = max((int(sample.timeStamp) for sample in samples), default=since)
        return {pid: round(sum(uses) / len(uses)) for pid, uses in by_pid.items()}, until

    def pcie_throughput(self) -> int | None:
        """Bytes per second, both ways.

        Each counter is sampled for 20 ms (NVML, `nvmlDeviceGetPcieThroughput`): the call is
        slow, and a sample of a sample.
        """
        ways = [
            maybe(pynvml.nvmlDeviceGetPcieThroughput, self._handle, counter)
            for counter in (pynvml.NVML_PCIE_UTIL_TX_BYTES, pynvml.NVML_PCIE_UTIL_RX_BYTES)
        ]
        known = [way for way in ways if way is not None]
        return sum(known) * _KIBI if known else None

    def sm_occupancy(self) -> float | None:
        """Percent of the warps that were active since the last call.

        None at the first, and where the GPU has no performance monitor (GPM, Hopper and later).
        """
        if self._occupancy is None:
            support = maybe(pynvml.nvmlGpmQueryDeviceSupport, self._handle)
            self._occupancy = _Occupancy(bool(support and support.isSupportedDevice))
        return self._occupancy.since_last(self._handle)

    def temperature(self) -> int | None:
        """Degrees Celsius."""
        kind = pynvml.NVML_TEMPERATURE_GPU
        return number(pynvml.nvmlDeviceGetTemperature, self._handle, kind)

    def shutdown_temperature(self) -> int | None:
        """Degrees at which the GPU shuts down."""
        kind = pynvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN
        return number(pynvml.nvmlDeviceGetTemperatureThreshold, self._handle, kind)

    def uncorrected_errors(self) -> int | None:
        """Memory errors that ECC could not correct, since the driver was loaded."""
        return number(
            pynvml.nvmlDeviceGetTotalEccErrors,
            self._handle,
            pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
            pynvml.NVML_VOLATILE_ECC,
        )

    def compute_mode(self) -> int | None:
        """One of pynvml's `NVML_COMPUTEMODE_*`."""
        return number(pynvml.nvmlDeviceGetComputeMode, self._handle)

    def set_compute_mode(self, mode: int) -> None:
        """Change it.

        Raises
        ------
        NotPermittedError
            If this process is not the node's administrator.
        """
        call(pynvml.nvmlDeviceSetComputeMode, self._handle, mode)

    def events(self) -> "GPUEvents":
        """Record its events from now on."""
        return GPUEvents(self._handle)


class GPUEvents:
    """Events of one GPU since this was made."""

    def __init__(self, handle: Any) -> None:
        self._set = call(pynvml.nvmlEventSetCreate)
        wanted = pynvml.nvmlEventTypeXidCriticalError | pynvml.nvmlEventTypeDoubleBitEccError
        supported = maybe(pynvml.nvmlDeviceGetSupportedEventTypes, handle) or 0
        self.supported = bool(wanted & supported)
        """Whether the GPU reports any; old ones do not."""
        if self.supported:
            call(pynvml.nvmlDeviceRegisterEvents, handle, wanted & supported, self._set)

    def wait(self, milliseconds: int) -> GPUEvent | None:
        """Wait for the next one; None when none came.

        Raises
        ------
        GPULostError
            If the GPU went away meanwhile.
        """
        try:
            data = pynvml.nvmlEventSetWait(self._set, milliseconds)
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_TIMEOUT:
                return None
            raise translated(error) from error
        is_xid = data.eventType == pynvml.nvmlEventTypeXidCriticalError
        return GPUEvent(int(data.eventData) if is_xid else 0)

    def close(self) -> None:
        """Stop recording."""
        maybe(pynvml.nvmlEventSetFree, self._set)


class _Occupancy:
    """Two samples of the performance monitor; the older is replaced each time."""

    def __init__(self, supported: bool) -> None:  # noqa: FBT001
        self._samples = [pynvml.nvmlGpmSampleAlloc() for _ in range(2)] if supported else []
        self._taken = 0

    def since_last(self, handle: Any) -> float | None:
        if not self._samples:
            return None
        last, new = self._samples
        call(pynvml.nvmlGpmSampleGet, handle, new)
        self._samples.reverse()
        self._taken += 1
        if self._taken == 1:
            return None
        asked = pynvml.c_nvmlGpmMetricsGet_t()
        asked.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        asked.numMetrics = 1
        asked.sample1, asked.sample2 = last, new
        asked.metrics[0].metricId = pynvml.NVML_GPM_METRIC_SM_OCCUPANCY
        answer = maybe(pynvml.nvmlGpmMetricsGet, asked)
        if answer is None or answer.metrics[0].nvmlReturn != pynvml.NVML_SUCCESS:
            return None
        return float(answer.metrics[0].value)


def _processes(handle: Any) -> list[Any]:
    return list(pynvml.nvmlDeviceGetComputeRunningProcesses_v3(handle))


def _mps_processes(handle: Any) -> list[Any]:
    return list(pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3(handle))
