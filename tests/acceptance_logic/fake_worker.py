"""The acceptance's programs on a fake GPU: it speaks as `acceptance.worker` and `program` do.

It is a client of the fake driver and the fake MPS as `gpu/cuda/cuda.c` is, and passes take as
long as FAKE_PASS says, in seconds.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import time
from pathlib import Path
from typing import Any

MIB = 1 << 20
ERRORS = {
    "808": "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED",
    "terminated": "CUDA_ERROR_MPS_CLIENT_TERMINATED",
    "fault": "CUDA_ERROR_LAUNCH_FAILED",
}
"""What the server or its refusal means to a client (`CUresult`)."""


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
        self.mps: Line | None = None
        self.until = 0.0
        if (pipes / "clients").exists():
            kind = "M"
            self.mps = Line(pipes / "clients")
            answer = self.mps.ask("connect")
            if answer[0] != "ok":
                raise RuntimeError(ERRORS.get(answer[0], answer[0]))
            self.limit = int(answer[1])
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
        elif do == "launch":
            self.until = time.monotonic() + more["seconds"]
            return {"ended": self.listen(0)}
        elif do == "wait":
            return {"ended": self.listen(self.until - time.monotonic())}
        elif do == "fault":
            assert self.mps is not None
            self.mps.socket.sendall(b"fault\n")
            return {"ended": self.listen(5)}
        elif do == "free":
            self.memory = 0
        elif do == "run":
            return self.run(more["seconds"])
        self.driver.ask(f"use {self.memory * MIB} 50")
        return {"granted": True, "said": "", "reserved": self.memory * MIB}

    def listen(self, seconds: float) -> str:
        """Wait; return the error that the MPS server reported meanwhile."""
        if self.mps is None:
            time.sleep(max(0, seconds))
        elif select.select([self.mps.socket], [], [], max(0, seconds))[0]:
            word = self.mps.socket.recv(64).decode().partition("\n")[0]
            return ERRORS.get(word, "CUDA_ERROR_MPS_RPC_FAILURE")
        return ""

    def run(self, seconds: float) -> dict[str, Any]:
        ended = self.listen(min(seconds, float(os.environ.get("FAKE_REST", "0.05"))))
        taken = float(os.environ.get("FAKE_PASS", "0.01"))
        # The neighbour of the limit's check is to compute on after the other was refused.
        stamps = [time.time() + 60 + taken * n for n in range(5)]
        return {"passes": 5, "seconds": 5 * taken, "stamps": stamps, "ended": ended}


def say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def main() -> None:
    if os.environ.get("FAKE_TORCH") == "broken":
        say({"error": "RuntimeError: no CUDA-capable device is detected"})
        return
    try:
        program = Program()
    except RuntimeError as error:
        say({"error": str(error)})
        return
    say({"pid": os.getpid(), "torch": "fake", "gpu": "fake", "sms": 108, "total": 40960})
    for line in sys.stdin:
        say(program.do(**json.loads(line)))


if __name__ == "__main__":
    main()
