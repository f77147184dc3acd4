"""The result of a replay as tables and as data. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import inf
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from typing_extensions import TypedDict

from partita.cli.number_format import duration, milliseconds, percent
from partita_policies.recordings import Recorded, RejectedLine
from partita_policies.start_times.wait_change import WaitChange
from partita_research.estimates import quantile
from partita_research.replay import Difference, Replay

__all__ = ["Facts", "ReplayReport", "report", "report_data"]

_CHANGES = {
    "earlier": "would have started, but was left to wait",
    "later": "would have waited, but was started",
    "elsewhere": "would have started on other GPUs",
    "others": "would have started there beside other jobs",
}
"""Kinds of changes, in the order of the columns."""
_WAIT = "mean time by which jobs are expected to start later (+) than under the recorded policy"


@dataclass(slots=True)
class Facts:
    """Summary of the recordings."""

    decisions: int = 0
    started: int = 0
    """Number of started jobs."""
    partitions: set[str] = field(default_factory=set)
    policies: Counter[str] = field(default_factory=Counter)
    """Number of decisions of each policy, including decisions as a fallback."""
    fallbacks: int = 0
    first: float = inf
    last: float = -inf

    def add(self, recorded: Recorded) -> None:
        """Count one decision."""
        decision, time = recorded.decision, recorded.snapshot.time
        self.decisions += 1
        self.started += len(decision.placements)
        self.partitions.add(recorded.snapshot.partition)
        self.policies[decision.policy] += 1
        self.fallbacks += bool(decision.failure)
        self.first, self.last = min(self.first, time), max(self.last, time)


class DecisionLatency(TypedDict):
    """Seconds that a decision takes on this machine."""

    mean: float
    p50: float
    p99: float
    max: float


class ReplayedWaits(TypedDict):
    """How expected waits change from those under the recorded policy, in the same futures."""

    jobs: int
    """Jobs in a sample of the snapshots about which both policies say when they start."""
    meanChange: float
    """Seconds that they wait longer; below 0, shorter."""


class ReplayedPolicy(TypedDict):
    """The decisions of a policy on the recorded snapshots."""

    policy: str
    same: int
    """Decisions that are equal to the recorded ones."""
    started: int
    """Jobs that it would have started."""
    changed: dict[str, int]
    """Number of changes by kind."""
    waits: ReplayedWaits
    failures: list[str]
    """File, line and reason of each snapshot on which it failed."""
    seconds: DecisionLatency
    different: list[Difference]


class ReplayReport(TypedDict):
    """The recorded decisions, and those of each policy."""

    decisions: int
    started: int
    """Jobs that were started."""
    partitions: list[str]
    first: float
    """Time of the first snapshot, in seconds since the epoch."""
    last: float
    recorded: dict[str, int]
    """Decisions by policy."""
    fallbacks: int
    """Decisions of a fallback."""
    refused: list[RejectedLine]
    """Lines that are not replayed."""
    policies: list[ReplayedPolicy]


def report(replays: Sequence[Replay], facts: Facts, *, show: int) -> RenderableType:
    """Draw the comparison, and examples of differing decisions of each policy."""
    parts: list[RenderableType] = [_head(facts), Text(), _table(replays, facts), Text()]
    changes = [one for one in _CHANGES if any(replay.changed[one] for replay in replays)]
    parts += [Text(f"{one}: {_CHANGES[one]}", style="dim") for one in changes]
    if any(replay.waits.jobs for replay in replays):
        parts.append(Text(f"wait: {_WAIT}", style="dim"))
    for replay in replays:
        parts += _examples(replay, show)
    return Group(*parts)


def _head(facts: Facts) -> Text:
    by = ", ".join(f"{name} {count}" for name, count in sorted(facts.policies.items()))
    fallback = f", {facts.fallbacks} of them as a fallback" if facts.fallbacks else ""
    return Text(
        f"{facts.decisions} decisions in {', '.join(sorted(facts.partitions))}, "
        f"{_when(facts.first)} to {_when(facts.last)}, which started {facts.started} jobs; "
        f"decided by {by}{fallback}"
    )


def _table(replays: Sequence[Replay], facts: Facts) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("Policy", style="bold")
    kinds = [kind.capitalize() for kind in _CHANGES]
    for heading in ("Same", "", "Starts", *kinds, "Wait", "Failed"):
        table.add_column(heading, justify="right")
    for heading in ("Mean", "p99"):
        table.add_column(heading, justify="right")
    for replay in replays:
        changed = replay.changed
        table.add_row(
            replay.name,
            str(replay.same),
            percent(replay.same / facts.decisions),
            str(replay.started),
            *(str(changed[kind]) if changed[kind] else "-" for kind in _CHANGES),
            _wait(replay.waits),
            Text(str(len(replay.failures)), style="red") if replay.failures else "-",
            milliseconds(replay.mean_seconds),
            milliseconds(quantile(replay.seconds, 0.99)),
        )
    return table


def _wait(change: WaitChange) -> str:
    """Format by how much waits change: `+3m12s` is longer."""
    seconds = round(change.mean)
    sign = "+" if seconds > 0 else "-" if seconds else ""
    return f"{sign}{duration(abs(seconds))}" if change.jobs else "-"


def _examples(replay: Replay, show: int) -> list[RenderableType]:
    if not show or not (replay.different or replay.failures):
        return []
    lines: list[RenderableType] = [Text(), Text(replay.name, style="bold")]
    lines += [Text(f"  {failure}", style="red") for failure in replay.failures[:show]]
    if len(replay.failures) > show:
        lines.append(Text(f"  and {len(replay.failures) - show} more failures", style="dim"))
    for difference in replay.different[:show]:
        place = f"{Path(difference.file).name}:{difference.line}"
        lines.append(
            Text.assemble(
                ("  " + _when(difference.time), "dim"),
                f"  {difference.partition}  ",
                (place, "dim"),
            )
        )
        lines += [Text(f"    {change}") for change in difference.changes]
    if len(replay.different) > show:
        lines.append(Text(f"  and {len(replay.different) - show} more that differ", style="dim"))
    return lines


def _when(time: float) -> str:
    try:
        return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return f"{time:g} s"


def report_data(
    replays: Sequence[Replay], facts: Facts, refused: Sequence[RejectedLine]
) -> ReplayReport:
    """Return the whole result as data; times in seconds."""
    return {
        "decisions": facts.decisions,
        "started": facts.started,
        "partitions": sorted(facts.partitions),
        "first": facts.first,
        "last": facts.last,
        "recorded": dict(facts.policies),
        "fallbacks": facts.fallbacks,
        "refused": list(refused),
        "policies": [_replay_data(replay) for replay in replays],
    }


def _replay_data(replay: Replay) -> ReplayedPolicy:
    return {
        "policy": replay.name,
        "same": replay.same,
        "started": replay.started,
        "changed": {kind: replay.changed[kind] for kind in _CHANGES},
        "waits": {"jobs": replay.waits.jobs, "meanChange": replay.waits.mean},
        "failures": replay.failures,
        "seconds": {
            "mean": replay.mean_seconds,
            "p50": quantile(replay.seconds, 0.5),
            "p99": quantile(replay.seconds, 0.99),
            "max": quantile(replay.seconds, 1.0),
        },
        "different": replay.different,
    }
