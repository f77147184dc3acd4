"""What every demo runs on: a cluster, the events in it, and the display."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Protocol

from partita.cli.cluster_state import read_state
from partita.console.view import partitions_view
from partita.store.state import State
from partita_testcluster.cli.demo_clock import DemoClock
from partita_testcluster.cli.demo_display import DemoDisplay
from partita_testcluster.cli.demo_events import DemoEvent
from partita_testcluster.cli.local_cluster import Sandbox

__all__ = ["STARTED_WITHIN", "DemoStage", "EventSource"]

_POLL: Final = 0.2
"""Seconds between two reads of the cluster."""
STARTED_WITHIN: Final = 90.0
"""Seconds for the GPUs to become ready; most of it is a reserve for slow machines."""


class EventSource(Protocol):
    """Derives events from each state of the cluster."""

    def update(self, state: State, now: datetime) -> Iterable[DemoEvent]:
        """Return the new events in a state."""


@dataclass(slots=True)
class DemoStage:
    """A cluster whose events are displayed."""

    box: Sandbox
    screen: DemoDisplay
    clock: DemoClock
    sources: tuple[EventSource, ...]

    async def watch(self, until: Callable[[State], bool], limit: float) -> bool:
        """Display events until a condition holds; return whether it held within these seconds."""
        try:
            async with asyncio.timeout(limit):
                while True:
                    self.box.check()
                    state, now = await read_state(self.box.kube), datetime.now(UTC)
                    events = [e for source in self.sources for e in source.update(state, now)]
                    self.screen.show(partitions_view(state, now), events, self.clock.at(now))
                    if until(state):
                        return True
                    await asyncio.sleep(_POLL)
        except TimeoutError:
            return False

    async def gpus_ready(self, wanted: int) -> list[str]:
        """Wait for the GPUs of the partition; return the exceeded time limit."""

        def ready(state: State) -> bool:
            return sum(s.status.holds("Ready") for s in state.servers.values()) >= wanted

        if await self.watch(ready, STARTED_WITHIN):
            return []
        return [f"{wanted} GPUs were not ready within {STARTED_WITHIN:.0f} s"]
