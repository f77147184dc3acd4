"""How the waits of recorded jobs would change under other policies, in the same futures.

A sample of the snapshots is continued under each policy. Run times and arrivals are drawn from what
the recording shows until then.
"""

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from random import Random

from partita_policies.errors import PolicyError
from partita_policies.recordings import Recorded
from partita_policies.registry import create
from partita_policies.start_times.futures import Futures
from partita_policies.start_times.history import PartitionHistory, Past
from partita_research.replay import Replay

__all__ = ["SampledWaits"]

SNAPSHOTS = 10
"""Snapshots of the sample."""
BUDGET = 1.0
"""Seconds of CPU time for one policy and snapshot."""


class SampledWaits:
    """A sample of recorded snapshots, each with the history of its partition."""

    def __init__(self) -> None:
        self._histories: defaultdict[str, PartitionHistory] = defaultdict(PartitionHistory)
        self._sample: list[tuple[Recorded, Past]] = []
        self._seen, self._random = 0, Random(0)  # noqa: S311 - repeatable, not secret

    def add(self, recorded: Recorded) -> None:
        """Learn from a snapshot, and take it into the sample as likely as every other."""
        history = self._histories[recorded.snapshot.partition]
        history.observe(recorded.snapshot)
        place = self._random.randrange(self._seen + 1) if self._seen >= SNAPSHOTS else self._seen
        self._seen += 1
        if place < SNAPSHOTS:
            self._sample[place : place + 1] = [(recorded, history.past())]

    def compare(self, replays: Sequence[Replay]) -> None:
        """Add to the waits of each replay how they differ from those under the recorded policy.

        That has the parameters of its own replay, or else its defaults: they are not recorded.
        """
        given = {replay.name: replay.policy for replay in replays}
        for recorded, past in self._sample:
            futures = partial(Futures, past=past, budget=BUDGET)
            name = recorded.decision.policy
            with suppress(PolicyError):
                before = futures(recorded.snapshot, given.get(name) or create(name)).complete()
                for replay in replays:
                    after = futures(replay.asked(recorded.snapshot), replay.policy)
                    replay.waits.add(before, after.complete())
