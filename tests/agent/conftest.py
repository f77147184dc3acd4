"""Fake GPUs for the agent's tests; what opens NVML closes it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agent.mps_container import mps
from gpu.fake import FakeGPUs, fake_gpu_build, fake_gpus
from partita.agent.gpu.nvml import NVMLDevice, close_library, gpus, open_library

__all__ = ["fake_gpu_build", "fake_gpus", "gpu", "mps"]


@pytest.fixture
def gpu(fake_gpus: FakeGPUs) -> Iterator[NVMLDevice]:
    """The first fake GPU, through NVML."""
    open_library()
    yield gpus()[0]
    close_library()
