"""Jobs in Kueue's queues and in Partita's partitions: equal work, one subject after another.

Each job is one Pod of the same size, priority and duration, in the queue or partition of its
namespace. Each subject runs a few jobs before it is measured. The order of the subjects is reversed
from one comparison to the next; a burst has the first subject once more at its end, which shows how
much the machine changed meanwhile.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from bench.compare import Contest
from bench.jobs import ClaimJobs, SharedJobs
from bench.load import burst, paced
from bench.peers.kueue import KueueJobs
from bench.report import Targets
from bench.shape import PARTITIONS, shrunk
from bench.stage import RECOMMENDED, UNLIMITED

__all__ = ["batch"]

TARGETS = Targets(wall=0.5, cpu=0.5, memory={"operator": 250})


def batch(given: argparse.Namespace) -> Iterator[Contest]:
    """Yield bursts and the shape of Kueue's benchmark, with throttles and without."""
    names = [f"partition-{number}" for number in range(PARTITIONS)]
    at_once, at_pace = burst(names, given.jobs), paced(names, shrunk(given.share))
    order = [KueueJobs(), SharedJobs(), ClaimJobs()]
    warm = burst(names, len(names), named="warm")
    for shape, works, again in (
        (f"a burst of {given.jobs} jobs", at_once, 1),
        (f"{len(at_pace)} jobs at the pace of Kueue's benchmark", at_pace, 0),
    ):
        for throttles in (RECOMMENDED, UNLIMITED):
            subjects = [*order, *order[:again]]
            title = f"{shape}, {throttles.name}"
            yield Contest(title, subjects, throttles, works, PARTITIONS, TARGETS, warm)
            order.reverse()
