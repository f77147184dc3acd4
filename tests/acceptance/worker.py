"""A program on the GPU with torch, and its commands.

prepare  kind                make a workload; answers the bytes that torch holds
run      seconds, begin      run it from a time on; answers passes and seconds
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

from acceptance.commands import serve

_WARM_UP = 3
"""Passes before any is timed: the first ones choose algorithms and load kernels."""


class Worker:
    """What the program has."""

    def __init__(self) -> None:
        import torch

        self.torch = torch
        self.one: Callable[[], object] = lambda: None
        torch.set_num_threads(1)
        torch.zeros(1, device="cuda")
        torch.cuda.synchronize()

    def facts(self) -> dict[str, Any]:
        """Tell what it runs on."""
        properties = self.torch.cuda.get_device_properties(0)
        return {
            "pid": os.getpid(),
            "torch": self.torch.__version__,
            "cuda": self.torch.version.cuda,
            "gpu": properties.name,
            "l2": properties.L2_cache_size,
            "sms": properties.multi_processor_count,
        }

    def prepare(self, kind: str) -> dict[str, Any]:
        from acceptance.workloads import KINDS

        self.one = lambda: None
        self.torch.cuda.empty_cache()
        self.one = KINDS[kind]()
        for _ in range(_WARM_UP):
            self.one()
        self.torch.cuda.synchronize()
        return {"reserved": self.torch.cuda.memory_reserved()}

    def run(self, seconds: float, begin: float = 0.0) -> dict[str, Any]:
        time.sleep(max(0.0, begin - time.time()))
        passes, start = 0, time.monotonic()
        while time.monotonic() < start + seconds:
            self.one()
            self.torch.cuda.synchronize()
            passes += 1
        return {"passes": passes, "seconds": time.monotonic() - start}


if __name__ == "__main__":
    sys.exit(serve(Worker))
