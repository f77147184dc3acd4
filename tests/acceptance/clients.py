"""Programs that use the GPU, each a process that does what it is told and says what came of it."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from acceptance.children import end, start

__all__ = ["Client", "ClientError", "run_together"]

_START_DEADLINE = 120.0
"""Seconds until torch is loaded and a context made. An assumption: cold disks are slow."""
_ANSWER_DEADLINE = 60.0
"""Seconds that an answer may take beyond what was asked for."""
_AHEAD = 0.2
"""Seconds by which programs that are to begin at once are told before."""
_SAID = 400

Answer = dict[str, Any]


class ClientError(Exception):
    """A program did not do what it was told."""


class Client:
    """One program.

    Parameters
    ----------
    command
        How to start it; it speaks lines of JSON.
    environment
        Its variables.
    said
        File for what it writes to stderr.
    ends_within
        Seconds for it to end once its stdin is closed, and once more after SIGTERM.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        said: Path,
        ends_within: float = 10.0,
    ) -> None:
        self._said = said
        self._ends_within = ends_within
        self._rest = b""
        self._process: subprocess.Popen[bytes] = start(command, environment, said)
        self.facts: Answer = {}
        """What it said of itself and its GPU."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Its PID, in our namespace."""
        return self._process.pid

    def ready(self, deadline: float = _START_DEADLINE) -> Self:
        """Wait until it has its context, for `deadline` seconds at most."""
        self.facts = self.receive(deadline)
        return self

    def send(self, do: str, **more: Any) -> None:
        """Tell it to do something."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **more}).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise ClientError(f"a client ended before it was told to {do}{self.said()}") from None

    def receive(
        self, seconds: float = _ANSWER_DEADLINE, meanwhile: Callable[[], object] | None = None
    ) -> Answer:
        """Take its answer.

        Parameters
        ----------
        meanwhile
            Called again and again until the answer is there.

        Raises
        ------
        ClientError
            If it ends, does not answer in time, or cannot do it.
        """
        assert self._process.stdout is not None
        deadline = time.monotonic() + seconds
        stdout = self._process.stdout.fileno()
        while b"\n" not in self._rest:
            left = deadline - time.monotonic()
            if left <= 0:
                raise ClientError(f"a client did not answer in {seconds:g} s{self.said()}")
            if meanwhile is not None:
                meanwhile()
            if select.select([stdout], [], [], 0 if meanwhile is not None else left)[0]:
                read = os.read(stdout, 1 << 16)
                if not read:
                    raise ClientError(f"a client ended{self.said()}")
                self._rest += read
        line, _, self._rest = self._rest.partition(b"\n")
        answer: Answer = json.loads(line)
        if "error" in answer:
            raise ClientError(str(answer["error"]))
        return answer

    def ask(self, do: str, **more: Any) -> Answer:
        """Tell it to do something and wait for the answer."""
        self.send(do, **more)
        return self.receive()

    def ended(self) -> str:
        """Return the error of what it was told to do, empty if it succeeded."""
        try:
            return str(self.receive()["ended"])
        except ClientError as error:
            return str(error)

    def said(self) -> str:
        """Return the end of its stderr, for a message."""
        text = self._said.read_text(errors="replace").strip() if self._said.exists() else ""
        return f"; it said: {text[-_SAID:]}" if text else ""

    def close(self) -> None:
        """End it."""
        end(self._process, self._ends_within)


def run_together(clients: Sequence[Client], seconds: float) -> list[float]:
    """Let programs run at the same time; return the seconds that one pass of each took.

    All run for the whole time, so each is measured beside all the others.
    """
    begin = time.time() + _AHEAD
    for client in clients:
        client.send("run", seconds=seconds, begin=begin)
    answers = [client.receive(seconds + _ANSWER_DEADLINE) for client in clients]
    return [answer["seconds"] / answer["passes"] for answer in answers]
