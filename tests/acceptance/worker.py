"""A program on the GPU: reads commands from stdin, a line of JSON each, and answers likewise.

    prepare  kind                make a workload; answers the bytes that torch holds
    run      seconds, begin      run it from a time on; answers passes and seconds

It ends when stdin does, so it cannot outlive who started it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

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


def say(answer: dict[str, Any]) -> None:
    """Answer."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def main() -> int:
    """Serve until stdin ends."""
    try:
        worker = Worker()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
        say({"error": f"{type(error).__name__}: {error}"})
        return 1
    say(worker.facts())
    commands: dict[str, Callable[..., dict[str, Any]]] = {
        "prepare": worker.prepare,
        "run": worker.run,
    }
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            say(commands[asked.pop("do")](**asked))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
            say({"error": f"{type(error).__name__}: {error}"})
    return 0


if __name__ == "__main__":
    sys.exit(main())
