"""The acceptance's program on a fake GPU: it speaks as `acceptance.worker` does, without torch.

It is a client of the fake driver and the fake MPS as `gpu/cuda/cuda.c` is, and passes take as
long as FAKE_PASS says, in seconds.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

MIB = 1 << 20


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
        self.memory, self.limit = 0, 0
        pipes = Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
        kind = "C"
        if (pipes / "clients").exists():
            kind = "M"
            self.mps = Line(pipes / "clients")
            self.limit = int(self.mps.ask("connect")[1])
            own = os.environ.get("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "")
            if own and os.environ.get("FAKE_LIMIT") != "ignored":
                self.limit = int(own.removeprefix("0=").removesuffix("M"))
        self.driver = Line(Path(os.environ["FAKE_GPU_DIR"]) / "driver.sock")
        self.driver.ask(f"attach 0 {kind}")
        if self.driver.ask("open")[0] != "ok":
            raise RuntimeError("CUDA error: out of memory")

    def do(self, do: str, **more: Any) -> dict[str, Any]:
        if do == "alloc":
            if self.limit and self.memory + more["mib"] > self.limit:
                return {"granted": False, "said": "CUDA out of memory."}
            self.memory += more["mib"]
        elif do == "free":
            self.memory = 0
        elif do == "run":
            return self.run(more["seconds"])
        self.driver.ask(f"use {self.memory * MIB} 50")
        return {"granted": True, "reserved": self.memory * MIB}

    def run(self, seconds: float) -> dict[str, Any]:
        time.sleep(min(seconds, float(os.environ.get("FAKE_REST", "0.05"))))
        taken = float(os.environ.get("FAKE_PASS", "0.01"))
        # The neighbour of the limit's check is to compute on after the other was refused.
        stamps = [time.time() + 60 + taken * n for n in range(5)]
        return {"passes": 5, "seconds": 5 * taken, "stamps": stamps}


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
