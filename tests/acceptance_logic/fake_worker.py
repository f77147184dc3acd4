"""The acceptance's program on a fake GPU: it speaks as `acceptance.worker` does, without torch.

It is a client of the fake driver and the fake MPS as `gpu/cuda/cuda.c` is.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any


class Line:
    """A socket that answers lines."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(path))
        self.file = self.socket.makefile("rw")

    def ask(self, text: str) -> list[str]:
        self.file.write(f"{text}\n")
        self.file.flush()
        return self.file.readline().split()


class Program:
    """What it has of the GPU."""

    def __init__(self) -> None:
        pipes = Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
        kind = "C"
        if (pipes / "clients").exists():
            kind = "M"
            self.mps = Line(pipes / "clients")
            self.mps.ask("connect")
        self.driver = Line(Path(os.environ["FAKE_GPU_DIR"]) / "driver.sock")
        self.driver.ask(f"attach 0 {kind}")
        if self.driver.ask("open")[0] != "ok":
            raise RuntimeError("CUDA error: out of memory")

    def do(self, do: str, seconds: float = 0.0, **_: Any) -> dict[str, Any]:
        if do == "prepare":
            self.driver.ask("use 0 50")
            return {"reserved": 0}
        time.sleep(min(seconds, 0.05))
        return {"passes": 5, "seconds": 0.05}


def say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def main() -> None:
    if os.environ.get("FAKE_TORCH") == "broken":
        say({"error": "RuntimeError: no CUDA-capable device is detected"})
        return
    program = Program()
    say({"pid": os.getpid(), "torch": "fake", "gpu": "fake"})
    for line in sys.stdin:
        say(program.do(**json.loads(line)))


if __name__ == "__main__":
    main()
