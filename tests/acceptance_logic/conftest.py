"""Fake GPUs with a driver, and a program for them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from acceptance.bench import Bench
from gpu.fake import MIB, FakeGPUs, fake_gpu_build, fake_gpus
from partita.agent.gpu.nvml import close_library, gpus, open_library
from support.polling import TIMEOUT

ROOT = Path(__file__).resolve().parents[2]

__all__ = ["bench", "fake_gpu_build", "fake_gpus", "worker"]


@pytest.fixture
def worker() -> tuple[str, ...]:
    """How the fake program is started."""
    return (sys.executable, "-S", str(Path(__file__).with_name("fake_worker.py")))


@pytest.fixture
def bench(
    fake_gpus: FakeGPUs, worker: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Bench]:
    """A fake GPU to try. Programs without torch are the real ones, with the fake CUDA driver."""
    folders = [str(ROOT / name) for name in ("operator", "policies", "tests")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(folders))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(fake_gpus.built.folder))
    fake_gpus.add(0, context=300 * MIB)
    fake_gpus.start_driver()
    open_library()
    gpu = gpus()[0]
    (folder := fake_gpus.folder / "acceptance").mkdir()
    times = {"seconds": 0.05, "neighbour_seconds": 0.5, "longest_gap": TIMEOUT}
    yield Bench(gpu, gpu.identity(), folder, worker=worker, **times)
    close_library()
