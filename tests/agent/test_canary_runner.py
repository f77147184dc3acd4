"""Canary clients beside the MPS control daemon: when one runs, and what its end means."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gpu.fake import FakeGPUs, uuid_of
from partita.agent.mps.canary_runner import CanaryOutcome, CanaryResult, CanaryRunner
from support.polling import until

UUID = uuid_of(0)
WITHIN = 60.0


class Canaries:
    """A runner beside a GPU; without MPS, so its canaries use the GPU alone."""

    def __init__(self, gpus: FakeGPUs) -> None:
        self.path = gpus.folder / "canary.json"
        self.environment = {"CUDA_MPS_PIPE_DIRECTORY": str(gpus.folder / "pipe")}
        self.runner = CanaryRunner(self.path, WITHIN)

    def request(self, number: int, **environment: str) -> None:
        self.runner.request(number, UUID, {**self.environment, **environment})

    async def answered(self, number: int) -> CanaryResult:
        def found() -> CanaryResult | None:
            result = CanaryResult.read(self.path)
            ended = result is not None and result.number == number and result.outcome is not None
            return result if ended else None

        result = await until(found)
        assert isinstance(result, CanaryResult)
        return result


@pytest.fixture
async def canaries(fake_gpus: FakeGPUs) -> AsyncIterator[Canaries]:
    fake_gpus.start_driver()
    made = Canaries(fake_gpus)
    yield made
    await made.runner.close()


def hung(folder: Path) -> dict[str, str]:
    """Variables with which a canary never returns: the module that replaces CUDA sleeps."""
    (folder / "sitecustomize.py").write_text("import time; time.sleep(3600)\n")
    return {"PYTHONPATH": str(folder)}


async def test_an_error_of_cuda_is_told(canaries: Canaries, fake_gpus: FakeGPUs):
    (fake_gpus.folder / "driver").unlink()
    canaries.request(1)
    result = await canaries.answered(1)
    assert result.outcome is CanaryOutcome.REFUSED
    assert result.message == "cuInit: CUDA_ERROR_NO_DEVICE"


async def test_a_full_gpu_answers_so_mps_works(canaries: Canaries, fake_gpus: FakeGPUs):
    fake_gpus.add(0, memory=1 << 19)
    canaries.request(1)
    result = await canaries.answered(1)
    assert result.outcome is CanaryOutcome.PASSED
    assert result.seconds > 0


async def test_one_that_hangs_is_killed(canaries: Canaries, tmp_path: Path):
    canaries.runner = CanaryRunner(canaries.path, 0.5)
    canaries.request(1, **hung(tmp_path))
    result = await canaries.answered(1)
    assert result.outcome is CanaryOutcome.HUNG
    with pytest.raises(ProcessLookupError):
        os.kill(result.pid, 0)


async def test_a_request_is_answered_once(canaries: Canaries):
    canaries.request(1)
    await canaries.answered(1)
    canaries.runner = CanaryRunner(canaries.path, WITHIN)  # the container was restarted
    canaries.request(1)
    canaries.request(0)
    canaries.request(2)  # would be ignored while another one runs
    assert (await canaries.answered(2)).outcome is CanaryOutcome.PASSED


async def test_a_request_that_was_not_answered_is_answered_by_the_next_container(
    canaries: Canaries, tmp_path: Path
):
    canaries.request(1, **hung(tmp_path))
    started = await until(lambda: CanaryResult.read(canaries.path))
    assert isinstance(started, CanaryResult)
    await canaries.runner.close()
    with pytest.raises(ProcessLookupError):
        os.kill(started.pid, 0)
    canaries.runner = CanaryRunner(canaries.path, WITHIN)
    canaries.request(1)
    assert (await canaries.answered(1)).outcome is CanaryOutcome.PASSED


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"outcome": "Sang"}', '{"outcome": null}'])
def test_a_file_that_is_no_result_is_ignored(tmp_path: Path, text: str):
    path = tmp_path / "canary.json"
    assert CanaryResult.read(path) is None
    path.write_text(text)
    assert CanaryResult.read(path) is None
