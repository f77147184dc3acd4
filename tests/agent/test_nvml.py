"""What the agent reads of a GPU, through pynvml and a fake library."""

from __future__ import annotations

from pathlib import Path

import pynvml
import pytest

from gpu.fake import MIB, FakeGPUs, uuid_of
from partita.agent.errors import (
    DeviceAccessLostError,
    GPULostError,
    NoDriverError,
    NotPermittedError,
    NVMLError,
    SetupError,
)
from partita.agent.gpu.nvml import NVMLDevice, close_library, gpus, open_library

EXCLUSIVE = pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS


def test_a_gpu_says_what_it_is(fake_gpus: FakeGPUs, gpu: NVMLDevice):
    identity = gpu.identity()
    assert identity.uuid == uuid_of(0)
    assert (identity.product, identity.architecture) == ("NVIDIA A100-SXM4-40GB", "Ampere")
    assert (identity.memory, identity.sm_count) == (40960 * MIB, 108)
    assert identity.pcie_bandwidth == pytest.approx(31.5e9, rel=0.01)
    assert (identity.capability, identity.mig, identity.vgpu) == ((8, 0), False, False)
    fake_gpus.add(0, mig=1, virtualization=2)
    assert (gpu.identity().mig, gpu.identity().vgpu) == (True, True)
    assert gpu.identity().driver == "580.95.05"


def test_several_gpus_are_found_by_number_and_by_uuid(fake_gpus: FakeGPUs, gpu: NVMLDevice):
    fake_gpus.add(1)
    assert [found.uuid() for found in gpus()] == [uuid_of(0), uuid_of(1)]
    assert NVMLDevice.of(uuid_of(1)).uuid() == uuid_of(1)
    with pytest.raises(GPULostError, match=r"cannot be found: .*\(NVRM\)"):
        NVMLDevice.of("GPU-none")


def test_what_a_gpu_cannot_tell_is_left_out_and_not_made_up(fake_gpus: FakeGPUs, gpu: NVMLDevice):
    fake_gpus.add(
        0,
        cores=6912,
        unsupported="nvmlDeviceGetArchitecture nvmlDeviceGetMigMode nvmlDeviceGetPcieThroughput "
        "nvmlDeviceGetCudaComputeCapability nvmlDeviceGetMaxPcieLinkWidth "
        "nvmlDeviceGetUtilizationRates nvmlDeviceGetComputeMode nvmlDeviceGetProcessUtilization "
        "nvmlDeviceGetMPSComputeRunningProcesses_v2 nvmlDeviceGetMemoryInfo",
    )
    identity = gpu.identity()
    assert identity.memory == 0  # a GB10 uses the node's
    # Cores alone do not tell of SMs: how many an SM has depends on the capability.
    assert (identity.architecture, identity.sm_count, identity.pcie_bandwidth) == ("", 0, 0)
    assert identity.capability is None
    assert gpu.compute_mode() is None
    assert gpu.sm_occupancy() is None
    assert gpu.processes() == {}


def test_sms_are_counted_by_cores(fake_gpus: FakeGPUs, gpu: NVMLDevice):
    fake_gpus.add(0, cores=3584, capability_major=6)
    assert gpu.identity().sm_count == 56  # a P100
    fake_gpus.add(0, capability_major=99)
    assert gpu.identity().sm_count == 0


def test_processes_are_listed_once_including_mps_clients(fake_gpus: FakeGPUs, gpu: NVMLDevice):
    assert gpu.processes() == {}
    fake_gpus.processes((10, 5 * MIB, 1, "C"), (11, 7 * MIB, 2, "M"), (12, 0, 0, "S"))
    assert gpu.processes() == {10: 5 * MIB, 11: 7 * MIB, 12: 0}
    assert gpu.memory_used() == 12 * MIB


def test_a_list_that_is_not_read_rightly_is_an_error_and_not_fewer_processes(
    fake_gpus: FakeGPUs, gpu: NVMLDevice
):
    fake_gpus.processes(*((10 + n, (n + 1) * MIB, 1, "M") for n in range(4)))
    for size in (16, 32):
        fake_gpus.add(0, entry=size)
        with pytest.raises(NVMLError, match=r"PID \d+, which none can have.*install another"):
            gpu.processes()


def test_utilisation_is_by_process_since_the_last_call(fake_gpus: FakeGPUs, gpu: NVMLDevice):
    assert gpu.process_utilization(5) == ({}, 5)
    fake_gpus.processes((10, MIB, 30, "M"), (11, MIB, 45, "M"), (12, 0, 0, "S"))
    assert gpu.process_utilization(5) == ({12: 75}, 6)
    fake_gpus.add(0, credits="clients")
    assert gpu.process_utilization(5) == ({10: 30, 11: 45}, 6)
    assert gpu.utilization()[0] == 75


def test_occupancy_takes_two_looks(fake_gpus: FakeGPUs, gpu: NVMLDevice):
    fake_gpus.add(0, occupancy=40)
    assert gpu.sm_occupancy() is None
    fake_gpus.add(0, occupancy=60)
    assert gpu.sm_occupancy() == 50
    assert gpu.sm_occupancy() == 60


def test_the_recovery_that_it_needs_is_told_by_newer_drivers(fake_gpus: FakeGPUs, gpu: NVMLDevice):
    assert gpu.recovery_action() == pynvml.NVML_GPU_RECOVERY_ACTION_NONE
    fake_gpus.add(0, recovery=1)
    assert gpu.recovery_action() == pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET
    fake_gpus.install_driver("560.35.03")
    assert gpu.recovery_action() is None


def test_pcie_throughput_is_the_sum_of_both_ways(fake_gpus: FakeGPUs, gpu: NVMLDevice):
    fake_gpus.add(0, pcie_tx=3, pcie_rx=4)
    assert gpu.pcie_throughput() == 7 * 1024


def test_use_that_alone_cannot_be_read_is_unknown(fake_gpus: FakeGPUs, gpu: NVMLDevice):
    functions = "DeviceGetPcieThroughput DeviceGetUtilizationRates DeviceGetProcessUtilization"
    names = [f"nvml{name}" for name in [*functions.split(), "GpmSampleGet"]]
    fake_gpus.add(0, occupancy=40, error="999 nvmlGpmSampleAlloc")
    assert gpu.sm_occupancy() is None
    fake_gpus.add(0, error=" ".join(["999", *names]))
    assert gpu.pcie_throughput() is gpu.process_utilization(0) is None
    assert gpu.utilization() == (None, None)
    assert gpu.sm_occupancy() is None
    assert gpu.memory_used() == 0


def test_an_xid_arrives_and_one_from_before_does_not(fake_gpus: FakeGPUs, gpu: NVMLDevice):
    fake_gpus.xid(13)
    events = gpu.events(0)
    assert next(events) is None
    fake_gpus.xid(79)
    assert next(events) == 79


@pytest.mark.parametrize(("driver", "told"), [("580.95.05", True), ("560.35.03", False)])
def test_another_recovery_action_is_an_event_without_an_xid(
    fake_gpus: FakeGPUs, gpu: NVMLDevice, driver: str, *, told: bool
):
    fake_gpus.install_driver(driver)
    events = gpu.events(0)
    assert next(events) is None
    fake_gpus.add(0, recovery=1)
    assert next(events) == (0 if told else None)
    assert next(events) is None


def test_an_old_gpu_tells_of_no_events(fake_gpus: FakeGPUs, gpu: NVMLDevice):
    fake_gpus.add(0, unsupported="nvmlDeviceGetSupportedEventTypes")
    assert list(gpu.events(0)) == []


def test_events_that_cannot_be_recorded_leave_nothing_open(fake_gpus: FakeGPUs, gpu: NVMLDevice):
    fake_gpus.add(0, error="11 nvmlDeviceRegisterEvents")
    opened = set(Path("/proc/self/fd").iterdir())
    with pytest.raises(NVMLError):
        next(gpu.events(0))
    assert set(Path("/proc/self/fd").iterdir()) == opened


# "Not supported", "no data", ... are values that a GPU does not have: the others are errors.
KINDS = {
    **dict.fromkeys(
        (1, 2, 5, 7, 8, 10, 11, 14, 19, 20, 22, 23, 24, 25, 27, 29, 30, 777), NVMLError
    ),
    4: NotPermittedError,
    **dict.fromkeys((9, 12, 18), NoDriverError),
    **dict.fromkeys((15, 16, 28), GPULostError),
    **dict.fromkeys((17, 999), DeviceAccessLostError),
}


@pytest.mark.parametrize(("code", "kind"), KINDS.items())
def test_each_error_has_its_kind_its_name_and_its_number(
    fake_gpus: FakeGPUs, gpu: NVMLDevice, code: int, kind: type[NVMLError]
):
    fake_gpus.add(0, error=code)
    name = next(
        (n for n, v in vars(pynvml).items() if n.startswith("NVML_ERROR") and v == code), ""
    )
    for ask in (gpu.memory_used, lambda: NVMLDevice.of(uuid_of(0))):
        with pytest.raises(NVMLError) as raised:
            ask()
        assert type(raised.value) is kind
        assert str(raised.value).startswith(f"{name} ({code})" if name else f"NVML error {code}")


def test_without_a_driver_there_is_an_error_of_its_own(fake_gpus: FakeGPUs):
    for _ in range(100):  # an agent of another test may have ended without letting go
        close_library()
    (fake_gpus.folder / "driver").unlink()
    with pytest.raises(NoDriverError):
        open_library()
    with pytest.raises(NVMLError):
        gpus()
    close_library()  # as often as one likes


def test_the_compute_mode_is_exclusive_for_mps_and_default_otherwise(
    fake_gpus: FakeGPUs, gpu: NVMLDevice
):
    gpu.set_exclusive(exclusive=True)
    assert fake_gpus.mode() == EXCLUSIVE
    gpu.set_exclusive(exclusive=False)
    assert fake_gpus.mode() == 0
    fake_gpus.add(0, unsupported="nvmlDeviceGetComputeMode nvmlDeviceSetComputeMode")
    gpu.set_exclusive(exclusive=True)  # a GPU without modes is served all the same


def test_a_mode_that_may_not_be_set_says_what_to_do(fake_gpus: FakeGPUs, gpu: NVMLDevice):
    fake_gpus.add(0, denied=1)
    with pytest.raises(SetupError, match="SYS_ADMIN") as raised:
        gpu.set_exclusive(exclusive=True)
    assert raised.value.reason == "ComputeModeRefused"
    gpu.set_exclusive(exclusive=False)  # it is DEFAULT already: nothing is written
