"""The errors of the program of `partita doctor`, whose tests run it on a fake GPU, too."""

from __future__ import annotations

import json
import sys
from typing import Any

from gpu.fake import FakeGPUs
from support.polling import TIMEOUT


def failed(gpus: FakeGPUs, role: str, **environment: str) -> dict[str, Any]:
    """Run a role of the program, which fails; return its last line."""
    gpus.start_driver()
    command = (sys.executable, "-m", "partita.agent.check", role, 1024, 1)
    child = gpus.start(*command, **environment)
    out, _ = child.communicate(timeout=TIMEOUT)
    assert child.returncode == 1
    return dict(json.loads(out.splitlines()[-1]))


def test_a_daemon_that_does_not_start_is_an_error(fake_gpus: FakeGPUs) -> None:
    said = failed(fake_gpus, "alone", PATH="/nonexistent")
    assert "nvidia-cuda-mps-control" in said["message"]


def test_a_gpu_that_cuda_cannot_use_is_an_error(fake_gpus: FakeGPUs) -> None:
    (fake_gpus.folder / "gpu-0.mode").write_text("2")
    said = failed(fake_gpus, "limit")
    assert (said["step"], said["role"]) == ("error", "limit")
    assert said["message"].startswith("cuDevicePrimaryCtxRetain")
