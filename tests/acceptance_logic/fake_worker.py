"""The acceptance's program with torch, without torch: it computes nothing, on the fake GPU."""

from __future__ import annotations

import sys
from contextlib import ExitStack

from acceptance.commands import Answer, serve
from acceptance.program import Program


class Worker(Program):
    """It speaks as `acceptance.worker` does."""

    def prepare(self, **_: object) -> Answer:
        self.launch(seconds=3600, blocks=50)
        return {"reserved": 0}

    def run(self, **_: object) -> Answer:
        return {"passes": 5, "seconds": 0.05}


if __name__ == "__main__":
    with ExitStack() as entered:
        sys.exit(serve(lambda: Worker(entered)))
