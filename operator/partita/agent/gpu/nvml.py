"""A typed interface of the driver's library NVML.

A call that the GPU, the driver or pynvml does not support returns None. Other failures are raised
as one of `partita.agent.errors`. All calls block, some of them for long: call them in a thread.

`NVML` below is https://docs.nvidia.com/deploy/nvml-api/.
"""

from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import pynvml

from partita.agent.errors import GPULostError, NotPermittedError, NVMLError, SetupError
from partita.agent.gpu.nvml_calls import call, maybe, optional, translated
from partita.agent.gpu.nvml_processes import memory_by_pid

__all__ = ["GPUIdentity", "NVMLDevice", "close_library", "gpus", "open_library"]

_ARCHITECTURE: Final = "NVML_DEVICE_ARCH_"
_ARCHITECTURES: Final = {
    value: name.removeprefix(_ARCHITECTURE).title()
    for name, value in vars(pynvml).items()
    if name.startswith(_ARCHITECTURE) and value != pynvml.NVML_DEVICE_ARCH_UNKNOWN
}
_CORES_PER_SM: Final = {
    (6, 0): 64, (6, 1): 128, (6, 2): 128, (7, 0): 64, (7, 2): 64, (7, 5): 64,
    (8, 0): 64, (8, 6): 128, (8, 7): 128, (8, 9): 128, (9, 0): 128, (10, 0): 128, (12, 0): 128,
}  # fmt: skip
"""FP32 cores of an SM by compute capability: CUDA C++ Programming Guide, "Compute Capabilities",
https://docs.nvidia.com/cuda/cuda-c-programming-guide/. If a capability is missing here, the number
of SMs counts as unknown."""

_LANE_BYTES: Final = {
    1: 250_000_000,
    2: 500_000_000,
    3: 984_615_384,
    4: 1_969_230_769,
    5: 3_938_461_538,
    6: 7_562_500_000,
}
"""Bytes per second of one PCIe lane by generation: 2.5 and 5 GT/s with 8 of 10 bits of payload, 8,
16 and 32 GT/s with 128 of 130 bits, 64 GT/s with 242 of 256 bytes (PCI-SIG's base
specifications)."""

_KIBI: Final = 1 << 10


def open_library() -> None:
    """Load the library and connect to the driver; each call needs one call of `close_library`.

    Raises
    ------
    NoDriverError
        The driver is missing, or its library is of another version.
    """
    call(pynvml.nvmlInitWithFlags, 0)


def close_library() -> None:
    """Close the library; this invalidates the GPUs that were found before."""
    with suppress(NVMLError):
        call(pynvml.nvmlShutdown)


def gpus() -> list["NVMLDevice"]:
    """Return all GPUs that are visible to this process."""
    count: int = call(pynvml.nvmlDeviceGetCount)
    return [NVMLDevice(call(pynvml.nvmlDeviceGetHandleByIndex, index)) for index in range(count)]


@dataclass(frozen=True, slots=True)
class GPUIdentity:
    """The constant properties of a GPU and its driver."""

    uuid: str
    """UUID, as NVML returns it."""
    product: str
    """Product name, such as `NVIDIA A100-SXM4-40GB`."""
    architecture: str
    """Architecture, such as `Ampere`; empty if unknown."""
    memory: int
    """Total memory, bytes; 0 if it has none of its own."""
    sm_count: int
    """Streaming multiprocessors; 0 if unknown."""
    pcie_bandwidth: int
    """Bytes per second of the PCIe link; 0 if unknown."""
    capability: tuple[int, int] | None
    """CUDA compute capability."""
    mig: bool
    """Whether the GPU is in MIG mode."""
    vgpu: bool
    """Whether it is a vGPU: a part of a GPU that the hypervisor gives to a virtual machine."""
    driver: str
    """The driver's version, such as `580.95.05`."""
    cuda: int | None = None
    """The newest CUDA that the driver supports, such as 13010 for 13.1; None if unknown."""

    @property
    def driver_major(self) -> int:
        """The first number of the driver's version; 0 if it has none."""
        major = self.driver.partition(".")[0]
        return int(major) if major.isdigit() else 0


class NVMLDevice:
    """One GPU.

    Parameters
    ----------
    handle
        NVML's handle of the GPU.
    """

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self._occupancy: _Occupancy | None = None

    @classmethod
    def of(cls, uuid: str) -> "NVMLDevice":
        """Find a GPU by its UUID.

        Raises
        ------
        GPULostError
            The GPU cannot be found.
        """
        try:
            return cls(pynvml.nvmlDeviceGetHandleByUUID(uuid))
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_NOT_FOUND:
                raise GPULostError(
                    f"GPU {uuid} cannot be found: read the kernel's log of the node (NVRM), and "
                    "reset the GPU or reboot the node"
                ) from error
            raise translated(error) from error

    def uuid(self) -> str:
        """Return the GPU's UUID."""
        return str(call(pynvml.nvmlDeviceGetUUID, self.handle))

    def identity(self) -> GPUIdentity:
        """Read the GPU's constant properties."""
        handle = self.handle
        memory = maybe(pynvml.nvmlDeviceGetMemoryInfo, handle)
        architecture = maybe(pynvml.nvmlDeviceGetArchitecture, handle)
        mig = maybe(pynvml.nvmlDeviceGetMigMode, handle)
        virtualization = maybe(pynvml.nvmlDeviceGetVirtualizationMode, handle)
        capability = maybe(pynvml.nvmlDeviceGetCudaComputeCapability, handle)
        generation = maybe(pynvml.nvmlDeviceGetMaxPcieLinkGeneration, handle)
        width = maybe(pynvml.nvmlDeviceGetMaxPcieLinkWidth, handle)
        return GPUIdentity(
            uuid=self.uuid(),
            product=str(call(pynvml.nvmlDeviceGetName, handle)),
            architecture=_ARCHITECTURES.get(architecture, ""),
            memory=int(memory.total) if memory is not None else 0,
            sm_count=self._sm_count(capability),
            pcie_bandwidth=_LANE_BYTES.get(generation or 0, 0) * (width or 0),
            capability=capability,
            mig=bool(mig and mig[0]),
            vgpu=virtualization == pynvml.NVML_GPU_VIRTUALIZATION_MODE_VGPU,
            driver=str(call(pynvml.nvmlSystemGetDriverVersion)),
            cuda=maybe(pynvml.nvmlSystemGetCudaDriverVersion_v2),
        )

    def _sm_count(self, capability: tuple[int, int] | None) -> int:
        # NVML tells them itself of MIG devices only (NVML, `nvmlDeviceGetAttributes_v2`).
        cores = maybe(pynvml.nvmlDeviceGetNumGpuCores, self.handle)
        per_sm = _CORES_PER_SM.get(capability) if capability else None
        return cores // per_sm if cores and per_sm else 0

    def processes(self) -> dict[int, int | None]:
        """Return the bytes of each process on the GPU by its PID on the node; None if unknown.

        Raises
        ------
        NVMLError
            The driver cannot list the processes: usage could not be attributed to jobs.
        """
        return memory_by_pid(self.handle)

    def memory_used(self) -> int:
        """Return the bytes in use, including the driver's own memory."""
        return int(call(pynvml.nvmlDeviceGetMemoryInfo, self.handle).used)

    def utilization(self) -> tuple[int, int] | tuple[None, None]:
        """Return the percentages of the last sample period: a kernel ran, its memory was in use."""
        rates = optional(pynvml.nvmlDeviceGetUtilizationRates, self.handle)
        return (None, None) if rates is None else (int(rates.gpu), int(rates.memory))

    def process_utilization(self, since: int) -> tuple[dict[int, int], int] | None:
        """Return the mean percentage of the SMs by PID, and the time of the newest sample.

        Parameters
        ----------
        since
            Time in microseconds, as the last call returned it; older samples are ignored.

        Notes
        -----
        None if the driver cannot tell. NVML returns "not found" if there is no newer
        sample. In this case no process has used the SMs, and the result is empty.
        """
        try:
            samples = pynvml.nvmlDeviceGetProcessUtilization(self.handle, since)
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_NOT_FOUND:
                return {}, since
            return None
        by_pid: dict[int, list[int]] = {}
        for sample in samples:
            if sample.timeStamp > since:
                by_pid.setdefault(int(sample.pid), []).append(min(100, int(sample.smUtil)))
        until = max((int(sample.timeStamp) for sample in samples), default=since)
        return {pid: round(sum(uses) / len(uses)) for pid, uses in by_pid.items()}, until

    def pcie_throughput(self) -> int | None:
        """Return the bytes per second over PCIe, the sum of both directions.

        NVML samples each counter for 20 ms (NVML, `nvmlDeviceGetPcieThroughput`). So the call is
        slow, and covers only a short time.
        """
        ways = [
            optional(pynvml.nvmlDeviceGetPcieThroughput, self.handle, counter)
            for counter in (pynvml.NVML_PCIE_UTIL_TX_BYTES, pynvml.NVML_PCIE_UTIL_RX_BYTES)
        ]
        known = [way for way in ways if way is not None]
        return sum(known) * _KIBI if known else None

    def sm_occupancy(self) -> float | None:
        """Return the percentage of the warps that were active since the last call.

        None at the first call, and if the GPU has no performance monitor (GPM, Hopper and later).
        """
        if self._occupancy is None:
            support = optional(pynvml.nvmlGpmQueryDeviceSupport, self.handle)
            if support is None or not support.isSupportedDevice:
                return None
            self._occupancy = optional(_Occupancy)
        return None if self._occupancy is None else self._occupancy.since_last(self.handle)

    def recovery_action(self) -> int | None:
        """Return one of pynvml's `NVML_GPU_RECOVERY_ACTION_*`; drivers before 565 have none."""
        field = pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
        found = maybe(pynvml.nvmlDeviceGetFieldValues, self.handle, [field])
        if found is None or found[0].nvmlReturn != pynvml.NVML_SUCCESS:
            return None
        return int(found[0].value.uiVal)

    def compute_mode(self) -> int | None:
        """Return one of pynvml's `NVML_COMPUTEMODE_*`."""
        mode: int | None = maybe(pynvml.nvmlDeviceGetComputeMode, self.handle)
        return mode

    def set_exclusive(self, *, exclusive: bool) -> None:
        """Set the compute mode EXCLUSIVE_PROCESS or the default one, unless it is set already.

        In the former only the MPS server may use the GPU. A program that does not find the server
        then fails with an error instead of using the GPU without a limit:
        https://docs.nvidia.com/deploy/mps/latest/, "GPU Compute Modes".

        Raises
        ------
        SetupError
            This process may not change the compute mode.
        """
        wanted = pynvml.NVML_COMPUTEMODE_DEFAULT
        if exclusive:
            wanted = pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS
        # MPS also works on a GPU without compute modes.
        if self.compute_mode() in {None, wanted}:
            return
        try:
            call(pynvml.nvmlDeviceSetComputeMode, self.handle, wanted)
        except NotPermittedError as error:
            raise SetupError(
                "ComputeModeRefused",
                "the agent may not set the GPU's compute mode: run it as root with the capability "
                "SYS_ADMIN",
            ) from error

    def events(self, milliseconds: int) -> Generator[int | None]:
        """Yield the GPU's events since the first one was asked for; nothing if it reports none.

        Old GPUs report none.

        Parameters
        ----------
        milliseconds
            How long to wait for the next one.

        Yields
        ------
        int or None
            The Xid; 0 for an event of another kind, None after this time without an event.

        Raises
        ------
        GPULostError
            The GPU was lost meanwhile.
        """
        recorded = call(pynvml.nvmlEventSetCreate)
        try:
            wanted = pynvml.nvmlEventTypeXidCriticalError | pynvml.nvmlEventTypeGpuRecoveryAction
            wanted &= maybe(pynvml.nvmlDeviceGetSupportedEventTypes, self.handle) or 0
            if wanted:
                call(pynvml.nvmlDeviceRegisterEvents, self.handle, wanted, recorded)
            while wanted:
                yield _next_event(recorded, milliseconds)
        finally:
            maybe(pynvml.nvmlEventSetFree, recorded)


def _next_event(recorded: Any, milliseconds: int) -> int | None:
    try:
        data = pynvml.nvmlEventSetWait(recorded, milliseconds)
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_TIMEOUT:
            return None
        raise translated(error) from error
    is_xid = data.eventType == pynvml.nvmlEventTypeXidCriticalError
    return int(data.eventData) if is_xid else 0


class _Occupancy:
    """Two samples of the performance monitor; each call replaces the older one."""

    def __init__(self) -> None:
        self._samples = [pynvml.nvmlGpmSampleAlloc() for _ in range(2)]
        self._taken = 0

    def since_last(self, handle: Any) -> float | None:
        last, new = self._samples
        if optional(pynvml.nvmlGpmSampleGet, handle, new) is None:
            return None
        self._samples.reverse()
        self._taken += 1
        if self._taken == 1:
            return None
        asked = pynvml.c_nvmlGpmMetricsGet_t()
        asked.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        asked.numMetrics = 1
        asked.sample1, asked.sample2 = last, new
        asked.metrics[0].metricId = pynvml.NVML_GPM_METRIC_SM_OCCUPANCY
        answer = optional(pynvml.nvmlGpmMetricsGet, asked)
        if answer is None or answer.metrics[0].nvmlReturn != pynvml.NVML_SUCCESS:
            return None
        return float(answer.metrics[0].value)
