"""Output of the demo: a live display in a terminal, plain lines otherwise."""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from partita.cli import terminal
from partita.cli.number_format import duration
from partita.cli.partitions.partition_view import Colours, partition_view
from partita.console.view import PartitionView
from partita_testcluster.cli.demo_events import DemoEvent

if TYPE_CHECKING:
    from rich.live import Live

__all__ = ["DemoDisplay", "demo_display"]

_EVENTS = 30
"""Maximum number of events; the height of the terminal limits how many are displayed."""


class DemoDisplay:
    """Displays the state of the GPUs and the latest events."""

    def __init__(self, live: "Live | None") -> None:
        self._live = live
        self._colours = Colours()
        self._events: deque[DemoEvent] = deque(maxlen=_EVENTS)
        self._head = ""

    def step(self, what: str) -> None:
        """Report the start of a step."""
        self._head = what
        if self._live is None:
            terminal.say(what)
        else:
            self._live.update(Text(what, style="dim"), refresh=True)

    def close(self) -> None:
        """Remove the live display; later output remains visible."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def show(
        self, partitions: Sequence[PartitionView], events: Sequence[DemoEvent], at: float
    ) -> None:
        """Display the current GPUs and queues, and new events.

        Parameters
        ----------
        at
            Simulated seconds since the start.
        """
        self._events.extend(events)
        if self._live is None:
            for event in events:
                terminal.say(f"{duration(event.at):>6}  {event.subject} {event.what}")
            return
        height = self._live.console.size.height
        self._live.update(self._picture(partitions, at, height), refresh=True)

    def _picture(
        self, partitions: Sequence[PartitionView], at: float, height: int
    ) -> RenderableType:
        head = Text(no_wrap=True, overflow="ellipsis")
        head.append("Partita demo", style="bold")
        head.append(f"  {self._head} · {duration(at)}", style="dim")
        bars = sum(1 + 2 * len(p.gpus) + bool(p.trouble) for p in partitions)
        free = max(6, height - bars - 4)
        queue = min(sum(len(p.queue) for p in partitions), max(3, free // 2))
        parts: list[RenderableType] = [head, Text()]
        parts += [partition_view(p, self._colours, queue_rows=queue) for p in partitions]
        parts.append(Text())
        lines = max(2, free - queue - 2)
        parts += [_line(event) for event in list(self._events)[-lines:]]
        return Group(*parts)


def _line(event: DemoEvent) -> Text:
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f"{duration(event.at):>6}  ", style="dim")
    line.append(event.subject, style="bold")
    return line.append(f" {event.what}", style=event.style or "default")


@contextmanager
def demo_display() -> Iterator[DemoDisplay]:
    """Open the display, and remove the live display at the end."""
    if not terminal.interactive():
        yield DemoDisplay(None)
        return
    with terminal.live() as live:
        yield DemoDisplay(live)
