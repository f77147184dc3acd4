"""Canary clients, and what their ends mean."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from unittest.mock import AsyncMock

import pytest

from gpu.fake import FakeGPUs, uuid_of
from partita.agent.mps import canary_check
from partita.agent.mps.canary_check import CanaryOutcome, CanaryRunner
from support.polling import until

WITHIN = 60.0


@pytest.fixture
def canaries(fake_gpus: FakeGPUs) -> CanaryRunner:
    """A runner beside a GPU; without MPS, so its canaries use the GPU alone."""
    fake_gpus.start_driver()
    return CanaryRunner(uuid_of(0), fake_gpus.folder / "pipe", lambda: None, WITHIN)


@pytest.fixture
def hung(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A canary never returns: the module that replaces CUDA sleeps."""
    (tmp_path / "sitecustomize.py").write_text("import time; time.sleep(3600)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


async def test_an_error_of_cuda_is_told(canaries: CanaryRunner, fake_gpus: FakeGPUs):
    (fake_gpus.folder / "driver").unlink()
    result = await canaries.run()
    assert result.outcome is CanaryOutcome.REFUSED
    assert result.message == "cuInit: CUDA_ERROR_NO_DEVICE"


async def test_a_full_gpu_answers_so_mps_works(canaries: CanaryRunner, fake_gpus: FakeGPUs):
    fake_gpus.add(0, memory=1 << 19)
    result = await canaries.run()
    assert result.outcome is CanaryOutcome.PASSED
    assert result.seconds > 0


@pytest.mark.usefixtures("hung")
async def test_one_that_hangs_is_killed_and_known_until_it_has_exited(fake_gpus, monkeypatch):
    canaries = CanaryRunner(uuid_of(0), fake_gpus.folder / "pipe", lambda: None, 0.5)
    with monkeypatch.context() as patch:
        patch.setattr(canary_check, "_kill", AsyncMock())  # it hangs in the driver
        await canaries.run()
    (first,) = canaries._processes
    result = await canaries.run()
    assert result.outcome is CanaryOutcome.HUNG
    assert len(canaries.pids) == 2
    await canary_check._kill(first)
    await until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in canaries.pids))


@pytest.mark.usefixtures("hung")
async def test_one_is_killed_with_the_agent(canaries: CanaryRunner):
    running = asyncio.create_task(canaries.run())
    await until(lambda: canaries.pids)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    await until(lambda: not Path(f"/proc/{max(canaries.pids)}").exists())
