"""How a program on the GPU is told what to do: lines of JSON on stdin, each answered by one."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, Protocol

__all__ = ["Answer", "serve"]

Answer = dict[str, Any]


class Program(Protocol):
    """What has the GPU; its methods are the commands."""

    def facts(self) -> Answer:
        """Describe what it runs on."""


def serve(make: Callable[[], Program]) -> int:
    """Tell the facts of a program, and do what it is told until stdin ends; return the exit code.

    So it cannot outlive the process that started it.
    """
    try:
        program = make()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
        _say(_failed(error))
        return 1
    _say(program.facts())
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            _say(getattr(program, asked.pop("do"))(**asked))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
            _say(_failed(error))
    return 0


def _failed(error: Exception) -> Answer:
    return {"error": f"{type(error).__name__}: {error}"}


def _say(answer: Answer) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
