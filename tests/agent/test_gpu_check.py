"""The program of `partita doctor` on a fake GPU, with a real process for each client."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from gpu.fake import MIB, FakeGPUs
from support.polling import TIMEOUT

SHARE = 1024


def steps(gpus: FakeGPUs, *arguments: object) -> tuple[int | None, dict[str, dict[str, Any]]]:
    """Run the program; return its exit code and the last line of each step."""
    child = gpus.start(sys.executable, "-m", "partita.agent.gpu.check", *arguments, 1)
    out, _ = child.communicate(timeout=TIMEOUT)
    lines = [json.loads(line) for line in out.splitlines()]
    return child.returncode, {line["step"]: line for line in lines}


@pytest.fixture
def gpus(fake_gpus: FakeGPUs) -> FakeGPUs:
    fake_gpus.add(0, context=100 * MIB)
    fake_gpus.start_driver()
    return fake_gpus


def test_a_limit_holds_and_the_neighbour_does_not_notice(gpus: FakeGPUs) -> None:
    code, found = steps(gpus, "alone", SHARE)
    assert code == 0
    assert 0 < found["limit"]["granted"] <= SHARE
    assert "CUDA_ERROR_OUT_OF_MEMORY" in found["limit"]["refusal"]
    assert found["neighbour"]["allocations"] > 0
    assert (found["neighbour"]["failures"], found["neighbour"]["error"]) == (0, "")
    assert gpus.pids() == {}, "nothing is left running"
    assert found["facts"]["computeMode"] == "Default"
    # The neighbour frees and allocates half of its share meanwhile.
    grown = found["limit"]["used"] - found["facts"]["used"]
    assert grown >= found["limit"]["granted"] - SHARE // 2


def test_without_a_limit_the_program_says_so(gpus: FakeGPUs) -> None:
    code, found = steps(gpus, "limit", SHARE)
    assert code == 0
    assert (found["limit"]["granted"], found["limit"]["refusal"]) == (2 * SHARE, "")


def test_a_daemon_that_does_not_start_is_an_error(gpus: FakeGPUs) -> None:
    child = gpus.start(
        sys.executable,
        "-m",
        "partita.agent.gpu.check",
        "alone",
        SHARE,
        1,
        PATH="/nonexistent",
    )
    out, _ = child.communicate(timeout=TIMEOUT)
    assert child.returncode == 1
    assert "nvidia-cuda-mps-control" in json.loads(out)["message"]


def test_a_gpu_that_cuda_cannot_use_is_an_error(gpus: FakeGPUs) -> None:
    (gpus.folder / "gpu-0.mode").write_text("2")
    code, found = steps(gpus, "limit", SHARE)
    assert code == 1
    assert found["error"]["role"] == "limit"
    assert found["error"]["message"].startswith("cuDevicePrimaryCtxRetain")
