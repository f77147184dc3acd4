"""A program on the GPU that needs only the driver; it reads commands as `worker` does.

    alloc    mib               allocate memory; answers whether it was granted
    managed  mib               the same with managed memory, filled on the GPU
    free                       free what was allocated
    memory                     answers free and total memory
    launch   seconds, blocks   start a kernel of this duration, and do not wait for it
    wait                       wait for all kernels; answers how they ended
    run      seconds           run short kernels for a time; answers how many, the
                               seconds of the longest, and how it ended
    fault    kind              a kernel that ends in a fault; answers how it ended
    again    mib               start another process of this program, which allocates this much

It ends when stdin ends, so that it cannot outlive the process that started it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from acceptance.kernels import Kernels
from partita.agent.errors import CUDAError

MIB = 1 << 20
CHUNK = 64
"""MiB of one allocation: a limit is found to within this."""
_SHORT = 0.005
"""Seconds of one kernel of `run`."""

Answer = dict[str, Any]


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
        return {
            "pid": os.getpid(),
            "uuid": self.uuid,
            "cuda": self.driver.version(),
            "sms": self.driver.multiprocessors(self.device),
            **self.memory(),
        }

    def memory(self) -> Answer:
        free, total = self.driver.memory()
        return {"free": free // MIB, "total": total // MIB}

    def alloc(self, mib: int) -> Answer:
        return self._allocate(self.driver.allocate, mib)

    def managed(self, mib: int) -> Answer:
        return self._allocate(self.driver.allocate_managed, mib)

    def _allocate(self, how: Callable[[int], int], mib: int) -> Answer:
        ended = _outcome(lambda: self.blocks.append(how(mib * MIB)))
        return {"granted": not ended, "said": ended}

    def free(self) -> Answer:
        while self.blocks:
            self.driver.free(self.blocks.pop())
        return {}

    def launch(self, seconds: float, blocks: int = 0) -> Answer:
        every = blocks or self.driver.multiprocessors(self.device)
        return {"ended": _outcome(lambda: self.driver.launch("spin", int(seconds * 1e9), every))}

    def wait(self) -> Answer:
        return {"ended": _outcome(self.driver.synchronize)}

    def run(self, seconds: float, begin: float = 0.0, blocks: int = 0) -> Answer:
        time.sleep(max(0.0, begin - time.time()))
        passes, ended, longest, start = 0, "", 0.0, time.monotonic()
        now = start
        while not ended and now < start + seconds:
            before = now
            ended = self.launch(_SHORT, blocks)["ended"] or self.wait()["ended"]
            passes += not ended
            now = time.monotonic()
            longest = max(longest, now - before)
        return {"passes": passes, "longest": longest, "ended": ended}

    def fault(self, kind: str) -> Answer:
        address = self.driver.allocate(MIB)
        ended = _outcome(lambda: self.driver.launch(f"fault_{kind}", address, 1))
        return {"ended": ended or self.wait()["ended"]}

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


def fill(program: Program, mib: int) -> int:
    """Allocate until `mib` MiB are reached or refused; return the MiB."""
    held = 0
    while held < mib and program.alloc(CHUNK)["granted"]:
        held += CHUNK
    return held


def say(answer: Answer) -> None:
    """Answer."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def main(arguments: list[str]) -> int:
    """Serve until stdin ends, or allocate as much as the only argument says."""
    with ExitStack() as stack:
        try:
            program = Program(stack)
        except CUDAError as error:
            say({"error": str(error)})
            return 1
        if arguments:
            sys.stdout.write(f"{fill(program, int(arguments[0]))}\n")
            return 0
        say(program.facts())
        for line in sys.stdin:
            asked = json.loads(line)
            try:
                say(getattr(program, asked.pop("do"))(**asked))
            except CUDAError as error:
                say({"error": str(error)})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
