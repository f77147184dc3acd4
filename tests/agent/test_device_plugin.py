"""The device plugin, against a kubelet of the tests' own."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import grpc
import pytest

from agent.kubelet import Kubelet, health_of
from gpu.fake import FakeGPUs, uuid_of
from partita.agent.errors import SetupError, SlotError
from partita.agent.gpu.discovery import AssignedGPU, assigned, check, find_gpu
from partita.agent.gpu.nvml import GPUIdentity, NVMLDevice
from partita.agent.kubelet import device_plugin
from partita.agent.kubelet.device_plugin import DevicePlugin, Slots
from partita.agent.mps.report import MPSReport
from partita.models import SharingMode
from partita.pods.allocation import device_resource
from support.polling import until

UUID = uuid_of(0)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_plugin, "_POLL", 0.02)


@pytest.fixture
async def kubelet() -> AsyncIterator[Kubelet]:
    with tempfile.TemporaryDirectory(prefix="kubelet-") as folder:
        made = Kubelet(Path(folder))
        await made.start()
        yield made
        await made.stop()


def slots(gpu: int = 0, **more: object) -> Slots:
    facts = {
        "server": f"gpus-{gpu}",
        "uuid": uuid_of(gpu),
        "count": 3,
        "mode": SharingMode.MPS,
        "injection": "Auto",
    }
    return Slots(**{**facts, **more})  # type: ignore[arg-type]


@contextlib.asynccontextmanager
async def serving(kubelet: Kubelet, *offered: Slots) -> AsyncIterator[list[DevicePlugin]]:
    async def prepare(device: str) -> None:
        if device.endswith("-2"):
            raise SlotError("its Pod has no allocation")

    def first(available: Sequence[str], _required: Sequence[str], count: int) -> list[str]:
        return list(available[:count])

    plugins = [DevicePlugin(one, kubelet.plugins, lambda: None, prepare, first) for one in offered]
    tasks = [asyncio.create_task(plugin.run()) for plugin in plugins]
    try:
        yield plugins
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_it_registers_its_gpus_resource(kubelet: Kubelet):
    async with serving(kubelet, slots()):
        asked = await kubelet.registered()
        assert asked.version == "v1beta1"
        assert asked.resource_name == device_resource(UUID) == "gpu.partita.dev/00000001"
        assert asked.endpoint == "partita-00000001.sock"
        options = await kubelet.options(asked.endpoint)
        assert options.pre_start_required
        assert asked.options.pre_start_required
        assert asked.options.get_preferred_allocation_available
        assert await kubelet.prefer(asked.endpoint, ["b", "a"], 1) == ["b"]


async def test_slots_are_unhealthy_until_the_gpu_is_ready_and_again_when_it_is_not(
    kubelet: Kubelet,
):
    async with serving(kubelet, slots()) as (plugin,):
        asked = await kubelet.registered()
        watch = kubelet.watch(asked.endpoint)
        ids = {f"00000001-{n}" for n in range(3)}
        assert health_of(await watch.read()) == dict.fromkeys(ids, "Unhealthy")
        await plugin.set_healthy(healthy=True)
        assert health_of(await watch.read()) == dict.fromkeys(ids, "Healthy")
        await plugin.set_healthy(healthy=True)
        await plugin.set_healthy(healthy=False)
        assert health_of(await watch.read()) == dict.fromkeys(ids, "Unhealthy")
        watch.cancel()


async def test_a_container_gets_the_pipes_and_keeps_its_own_shared_memory(kubelet: Kubelet):
    async with serving(kubelet, slots()) as (plugin,):
        asked = await kubelet.registered()
        await plugin.set_healthy(healthy=True)
        answer = await kubelet.allocate(asked.endpoint, ["00000001-0"], ["00000001-1"])
        assert len(answer.container_responses) == 2
        for container in answer.container_responses:
            assert {(m.container_path, m.host_path, m.read_only) for m in container.mounts} == {
                (f"/run/partita/{UUID}/pipe", f"/run/partita/{UUID}/pipe", False),
            }
            assert not container.cdi_devices
            assert not container.envs


async def test_cdi_names_the_gpu_where_the_partition_wants_it():
    container = slots(injection="CDI").container("00000001-0", None)
    assert [d.name for d in container.cdi_devices] == [f"nvidia.com/gpu={UUID}"]
    assert not slots(injection="RuntimeClass").container("00000001-0", None).cdi_devices


async def test_without_mps_nothing_is_mounted():
    for mode in (SharingMode.TIME_SLICING, SharingMode.EXCLUSIVE):
        assert not slots(mode=mode).container("00000001-0", None).mounts


async def test_with_protocol_3_a_container_gets_the_namespace_of_its_slot_alone():
    container = slots().container("00000001-2", MPSReport(daemon=1, protocol=3))
    (mount,) = container.mounts
    assert mount.container_path == f"/run/partita/{UUID}/pipe"
    assert mount.host_path == f"/run/partita/{UUID}/pipe/partita/slot_2"


@pytest.mark.parametrize("protocol", [2, 3])
async def test_a_container_gets_the_sm_partition_of_its_slot(protocol: int):
    partitions = tuple(f"{UUID}/P{n}" for n in range(3))
    container = slots().container("00000001-1", MPSReport(1, protocol, sm_partitions=partitions))
    assert container.envs == {"CUDA_MPS_SM_PARTITION": f"{UUID}/P1"}


async def test_a_container_whose_slot_cannot_be_prepared_is_not_started(kubelet: Kubelet):
    async with serving(kubelet, slots()):
        asked = await kubelet.registered()
        await kubelet.pre_start(asked.endpoint, "00000001-1")
        with pytest.raises(grpc.aio.AioRpcError, match="no allocation") as raised:
            await kubelet.pre_start(asked.endpoint, "00000001-2")
        assert raised.value.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_slots_of_an_unhealthy_gpu_are_not_allocated(kubelet: Kubelet):
    async with serving(kubelet, slots()):
        asked = await kubelet.registered()
        with pytest.raises(grpc.aio.AioRpcError, match="conditions") as raised:
            await kubelet.allocate(asked.endpoint, ["00000001-0"])
        assert raised.value.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_it_registers_again_when_kubelet_has_restarted(kubelet: Kubelet):
    async with serving(kubelet, slots()) as (plugin,):
        await kubelet.registered()
        await plugin.set_healthy(healthy=True)
        await kubelet.stop()
        await kubelet.start()
        asked = await kubelet.registered(2)
        watch = kubelet.watch(asked.endpoint)
        assert set(health_of(await watch.read()).values()) == {"Healthy"}
        watch.cancel()


async def test_it_waits_for_a_kubelet_that_is_not_there(kubelet: Kubelet):
    await kubelet.stop()
    (kubelet.plugins / "kubelet.sock").unlink(missing_ok=True)
    async with serving(kubelet, slots()) as (plugin,):
        await until((kubelet.plugins / "partita-00000001.sock").exists)
        assert not plugin.registered.is_set()
        await kubelet.start()
        await kubelet.registered()
        await asyncio.wait_for(plugin.registered.wait(), 10)


async def test_a_kubelet_that_refuses_is_asked_again(kubelet: Kubelet):
    kubelet.refuse = "resource name is taken"
    async with serving(kubelet, slots()) as (plugin,):
        await until(lambda: kubelet.refusals >= 2)
        assert not plugin.registered.is_set()
        kubelet.refuse = ""
        await kubelet.registered()


async def test_several_gpus_of_a_node_have_a_plugin_each(kubelet: Kubelet):
    async with serving(kubelet, slots(0), slots(1)) as (first, _):
        await kubelet.registered(2)
        by_resource = {r.resource_name: r.endpoint for r in kubelet.registrations}
        assert by_resource == {
            "gpu.partita.dev/00000001": "partita-00000001.sock",
            "gpu.partita.dev/00000002": "partita-00000002.sock",
        }
        await first.set_healthy(healthy=True)
        with pytest.raises(grpc.aio.AioRpcError):
            await kubelet.allocate("partita-00000002.sock", ["00000002-0"])
        await kubelet.allocate("partita-00000001.sock", ["00000001-0"])


async def test_its_socket_goes_with_it(kubelet: Kubelet):
    async with serving(kubelet, slots()):
        await kubelet.registered()
    assert list(kubelet.plugins.glob("partita-*")) == []


async def test_kubelet_says_which_gpu_the_pod_got(
    kubelet: Kubelet, fake_gpus: FakeGPUs, gpu: NVMLDevice, monkeypatch: pytest.MonkeyPatch
):
    fake_gpus.add(1)
    kubelet.gives("somebody", uuid_of(0))
    kubelet.gives("gpus-1", f"{uuid_of(1)}::4")
    told = await assigned("gpus-1", "partita-system", kubelet.pod_resources)
    assert told == AssignedGPU((uuid_of(1),))
    # kubelet's word counts more than the environment's.
    monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", uuid_of(0))
    assert find_gpu(told.uuids).uuid() == uuid_of(1)
    assert await assigned("gpus-1", "elsewhere", kubelet.pod_resources) == AssignedGPU()
    nothing = kubelet.folder / "nothing"
    assert await assigned("gpus-1", "partita-system", nothing) == AssignedGPU()
    assert find_gpu([]).uuid() == uuid_of(0)


async def test_without_a_report_the_only_visible_gpu_is_used(
    fake_gpus: FakeGPUs, gpu: NVMLDevice, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", "all")
    assert find_gpu([]).uuid() == uuid_of(0)
    fake_gpus.add(1)
    with pytest.raises(SetupError, match="pod-resources") as raised:
        find_gpu([])
    assert raised.value.reason == "SeveralGPUs"
    for gone in (0, 1):
        (fake_gpus.folder / f"gpu-{gone}").unlink()
    with pytest.raises(SetupError) as raised:
        find_gpu([])
    assert raised.value.reason == "NoGPU"


def identity(**more: object) -> GPUIdentity:
    facts = {
        "uuid": UUID,
        "product": "GPU",
        "architecture": "",
        "memory": 1,
        "sm_count": 0,
        "pcie_bandwidth": 0,
        "capability": (8, 0),
        "mig": False,
    }
    return GPUIdentity(**{**facts, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("facts", "driver", "reason"),
    [
        ({"mig": True}, "580.95.05", "MIGEnabled"),
        ({}, "470.82.01", "DriverTooOld"),
        ({}, "unknown", "DriverTooOld"),
        ({"capability": (6, 1)}, "580.95.05", "GPUTooOld"),
    ],
)
def test_a_gpu_that_mps_cannot_share_is_reported_with_a_remedy(facts, driver: str, reason: str):
    with pytest.raises(SetupError) as raised:
        check(identity(**facts), driver, SharingMode.MPS)
    assert raised.value.reason == reason


def test_time_slicing_shares_what_mps_cannot():
    check(identity(capability=(6, 1)), "390.1", SharingMode.TIME_SLICING)
    check(identity(capability=None), "580.1", SharingMode.MPS)
    with pytest.raises(SetupError):
        check(identity(mig=True), "580.1", SharingMode.EXCLUSIVE)
