"""Fake GPUs with a driver, and a program for them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from acceptance.bench import Bench
from gpu.fake import MIB, FakeGPUs, fake_gpu_build, fake_gpus
from partita.agent.nvml import close_library, gpus, open_library

__all__ = ["bench", "fake_gpu_build", "fake_gpus", "worker"]


@pytest.fixture
def worker() -> tuple[str, ...]:
    """How the fake program is started."""
    return (sys.executable, "-I", "-S", str(Path(__file__).with_name("fake_worker.py")))


@pytest.fixture
def bench(fake_gpus: FakeGPUs, worker: tuple[str, ...]) -> Iterator[Bench]:
    """A fake GPU to try."""
    fake_gpus.add(0, context=300 * MIB)
    fake_gpus.start_driver()
    open_library()
    gpu = gpus()[0]
    folder = fake_gpus.folder / "acceptance"
    folder.mkdir()
    yield Bench(gpu, gpu.identity(), folder, worker=worker, program=worker, seconds=0.05)
    close_library()
