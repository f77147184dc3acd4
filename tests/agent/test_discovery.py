"""Which GPU kubelet gave the server Pod, and which GPUs jobs can share."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.kubelet import Kubelet
from gpu.fake import FakeGPUs, uuid_of
from partita.agent.errors import SetupError
from partita.agent.gpu.discovery import assigned, check, find_gpu
from partita.agent.gpu.nvml import GPUIdentity, NVMLDevice
from partita.models import SharingMode


@pytest.fixture
async def kubelet() -> AsyncIterator[Kubelet]:
    with tempfile.TemporaryDirectory(prefix="kubelet-") as folder:
        made = Kubelet(Path(folder))
        await made.start()
        yield made
        await made.stop()


async def test_kubelet_says_which_gpu_the_pod_got(
    kubelet: Kubelet, fake_gpus: FakeGPUs, gpu: NVMLDevice
):
    fake_gpus.add(1)
    kubelet.gives("somebody", uuid_of(0))
    kubelet.gives("gpus-1", f"{uuid_of(1)}::4")
    told = await assigned("gpus-1", "partita-system", kubelet.pod_resources)
    assert told == ((uuid_of(1),), ())
    assert find_gpu(told[0]).uuid() == uuid_of(1)
    assert await assigned("gpus-1", "elsewhere", kubelet.pod_resources) == ((), ())
    nothing = kubelet.folder / "nothing"
    assert await assigned("gpus-1", "partita-system", nothing) == ((), ())
    with pytest.raises(SetupError, match="MIG mode"):
        find_gpu(["MIG-30d00c09-8a98-59b8-8c1a-1d64b4ec3ad2"])


async def test_without_a_report_the_only_visible_gpu_is_used(fake_gpus: FakeGPUs, gpu: NVMLDevice):
    assert find_gpu([]).uuid() == uuid_of(0)
    fake_gpus.add(1)
    with pytest.raises(SetupError, match="--kubelet-directory") as raised:
        find_gpu([])
    assert raised.value.reason == "SeveralGPUs"
    for gone in (0, 1):
        (fake_gpus.folder / f"gpu-{gone}").unlink()
    with pytest.raises(SetupError) as raised:
        find_gpu([])
    assert raised.value.reason == "NoGPU"


GPU = GPUIdentity(uuid_of(0), "GPU", "", 1, 0, 0, (8, 0), mig=False, vgpu=False, driver="580.95.05")


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"mig": True}, "MIGEnabled"),
        ({"memory": 0}, "NoDedicatedMemory"),
        ({"vgpu": True}, "VirtualGPU"),
        ({"driver": "470.82.01"}, "DriverTooOld"),
        ({"driver": "unknown"}, "DriverTooOld"),
        ({"capability": (6, 1)}, "GPUTooOld"),
    ],
)
def test_a_gpu_that_mps_cannot_share_is_reported_with_a_remedy(facts, reason: str):
    with pytest.raises(SetupError) as raised:
        check(replace(GPU, **facts), SharingMode.MPS)
    assert raised.value.reason == reason


def test_time_slicing_shares_what_mps_cannot():
    check(replace(GPU, capability=(6, 1), driver="390.1"), SharingMode.TIME_SLICING)
    check(replace(GPU, vgpu=True), SharingMode.TIME_SLICING)
    check(replace(GPU, capability=None), SharingMode.MPS)
    for unshared in ({"mig": True}, {"memory": 0}):
        with pytest.raises(SetupError):
            check(replace(GPU, **unshared), SharingMode.EXCLUSIVE)
