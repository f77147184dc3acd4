"""A program on the GPU that needs only the driver, and its commands.

alloc    mib               allocate memory; answers whether it was granted
fill     mib, managed      allocate chunks until so much is held or one is refused; answers what
                           is held, and the refusal. Managed memory is filled on the GPU
free                       free what was allocated
launch   seconds, blocks   start a kernel of this duration, and do not wait for it
run      seconds           run short kernels for a time; answers how many, the
                           seconds of the longest, and how it ended
fault    kind              a kernel that ends in a fault; answers how it ended
again    mib               start another process of this program, which allocates this much
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack

from acceptance.commands import Answer, serve
from acceptance.kernels import Kernels
from partita.agent.errors import CUDAError

MIB = 1 << 20
CHUNK = 64
"""MiB of one allocation: a limit is found to within this."""
_SHORT = 0.005
"""Seconds of one kernel of `run`."""


class Program:
    """What the program has of the GPU."""

    def __init__(self, stack: ExitStack) -> None:
        self.driver = Kernels()
        self.driver.initialize()
        (uuid, self.device), *_ = self.driver.devices().items()
        stack.enter_context(self.driver.context(self.device))
        self.driver.load()
        self.uuid = uuid
        self.blocks: list[int] = []

    def facts(self) -> Answer:
        """Describe what the program runs on."""
        memory = self.driver.memory()
        return {
            "pid": os.getpid(),
            "uuid": self.uuid,
            "sms": self.driver.multiprocessors(self.device),
            "total": memory.total // MIB,
            "available": memory.free // MIB,
        }

    def alloc(self, mib: int) -> Answer:
        ended = _outcome(lambda: self.blocks.append(self.driver.allocate(mib * MIB)))
        return {"granted": not ended, "said": ended}

    def fill(self, mib: int, *, managed: bool = False) -> Answer:
        how = self.driver.allocate_managed if managed else self.driver.allocate
        held, said = 0, ""
        while held < mib and not said:
            said = _outcome(lambda: self.blocks.append(how(CHUNK * MIB)))
            held += 0 if said else CHUNK
        return {"held": held, "said": said}

    def free(self) -> Answer:
        while self.blocks:
            self.driver.free(self.blocks.pop())
        return {}

    def launch(self, seconds: float, blocks: int = 0) -> Answer:
        every = blocks or self.driver.multiprocessors(self.device)
        return {"ended": _outcome(lambda: self.driver.launch("spin", int(seconds * 1e9), every))}

    def run(self, seconds: float, begin: float = 0.0, blocks: int = 0) -> Answer:
        time.sleep(max(0.0, begin - time.time()))
        passes, ended, longest, start = 0, "", 0.0, time.monotonic()
        now = start
        while not ended and now < start + seconds:
            before = now
            ended = self.launch(_SHORT, blocks)["ended"] or _outcome(self.driver.synchronize)
            passes += not ended
            now = time.monotonic()
            longest = max(longest, now - before)
        return {"passes": passes, "longest": longest, "ended": ended}

    def fault(self, kind: str) -> Answer:
        address = self.driver.allocate(MIB)
        ended = _outcome(lambda: self.driver.launch(f"fault_{kind}", address, 1))
        return {"ended": ended or _outcome(self.driver.synchronize)}

    def again(self, mib: int) -> Answer:
        """CUDA cannot be used in a forked process, so that one starts this program anew."""
        command = [sys.executable, "-m", "acceptance.program", str(mib)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        lines = ran.stdout.splitlines()
        return {"granted": int(lines[-1])} if lines else {"error": ran.stderr[-300:]}


def _outcome(call: Callable[[], object]) -> str:
    """Return the error of a call, empty if it succeeded."""
    try:
        call()
    except CUDAError as error:
        return str(error)
    return ""


class Counter:
    """A program that only counts GPUs: it has no context."""

    def __init__(self) -> None:
        driver = Kernels()
        driver.initialize()
        self.uuids = list(driver.devices())

    def facts(self) -> Answer:
        return {"pid": os.getpid(), "uuids": self.uuids}


def main(arguments: list[str]) -> int:
    """Serve until stdin ends, or allocate as much as the only argument says."""
    if arguments == ["count"]:
        return serve(Counter)
    with ExitStack() as stack:
        if not arguments:
            return serve(lambda: Program(stack))
        sys.stdout.write(f"{Program(stack).fill(int(arguments[0]))['held']}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
