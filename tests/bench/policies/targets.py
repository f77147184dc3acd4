"""What the figures must show (issue 18), and whether they do."""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

from bench.policies.comparison import Found, compared, scenes_of
from bench.policies.figures import Estimate, against, estimate
from bench.policies.parts import HEURISTICS

__all__ = ["Target", "targets"]

_ROUNDING = 1e-3
"""Percent by which two figures differ that are the same but for stored digits."""


_LEARNT, _SURELY = -2.0, -1.3
"""Percent of the prior's makespan: the mean, and the upper end of the interval."""


class Target(NamedTuple):
    """One line of the list."""

    what: str
    measured: str
    met: str
    """`yes`, `no`, or `unsure` if the interval has the limit in it."""


def targets(found: Found) -> list[Target]:
    """Return every target with what was measured, for the parts that ran."""
    checks = (_study, _random, _learning, _completion, _spread, _saturation, _wrong, _speed, _times)
    return [target for check in checks for target in check(found)]


def _at_most(what: str, apart: Estimate, limit: float, unit: str = "%") -> Target:
    measured = _measured(apart, unit)
    if apart.mean > limit + _ROUNDING:
        return Target(what, measured, "no")
    return Target(what, measured, "yes" if apart.high <= limit + _ROUNDING else "unsure")


def _measured(apart: Estimate, unit: str) -> str:
    return f"{apart.mean:+.2f} ± {apart.half:.2f} {unit} (n = {apart.count})"


def _pairs(
    rows: Mapping[str, Any], ours: str, other: str, figure: str, what: str, limit: float
) -> Iterator[Target]:
    """Yield a target on two variants in a scene, unless one of them did not run."""
    if ours in rows and other in rows:
        yield _at_most(what, compared(rows, ours, other, figure), limit)


def _within(what: str, value: float, limit: float, unit: str, *, least: bool = False) -> Target:
    met = value >= limit if least else value <= limit
    return Target(what, f"{value:,.4g} {unit}", "yes" if met else "no")


def _study(found: Found) -> Iterator[Target]:
    for workload, rows in scenes_of(found, "study").items():
        ours = "dqn Makespan"
        for other, limit in (("sjf exclusive", 0.0), ("lookahead Makespan", 1.0)):
            what = f"{workload}: {ours}'s makespan at most {limit:.0f} % above {other}'s"
            yield from _pairs(rows, ours, other, "makespan", what, limit)


def _random(found: Found) -> Iterator[Target]:
    for scene, rows in scenes_of(found, "random").items():
        ours = "dqn Makespan"
        what = f"{scene}: {ours}'s makespan within 0.5 % of lookahead's"
        yield from _pairs(rows, ours, "lookahead Makespan", "makespan", what, 0.5)
        if ours not in rows:
            continue
        for figure, limit in (("decision", 6.0), ("decision p99", 15.0)):
            taken = estimate(rows[ours][figure]).mean
            what = f"{scene}: {ours}'s {figure} (mean over workloads) at most {limit:.0f} ms"
            yield _within(what, taken, limit, "ms")


def _learning(found: Found) -> Iterator[Target]:
    rows = scenes_of(found, "learning").get("Makespan")
    for name, found_of in (rows or {}).items():
        if not name.startswith("network alone"):
            continue
        apart = Estimate(*found_of)
        missed = "no" if apart.mean > _LEARNT or apart.high > _SURELY else "yes"
        what = f"dqn's {name}: makespan {-_LEARNT:.1f} % below its prior's, surely {-_SURELY:.1f} %"
        yield Target(what, _measured(apart, "%"), missed)


def _completion(found: Found) -> Iterator[Target]:
    for part in ("random", "at-once"):
        for scene, rows in scenes_of(found, part).items():
            ours = "dqn Completion"
            what = f"{scene}: {ours}'s completion 2 % below tetris'"
            yield from _pairs(rows, ours, "tetris", "completion", what, -2.0)
    for part in ("arrivals-8", "arrivals-64"):
        for scene, rows in scenes_of(found, part).items():
            if "80 %" not in scene and "95 %" not in scene:
                continue
            ours = "dqn Completion"
            what = f"{scene}: {ours}'s completion 3 % below tetris'"
            yield from _pairs(rows, ours, "tetris", "completion", what, -3.0)
            what = f"{scene}: {ours}'s completion p95 not above tetris'"
            yield from _pairs(rows, ours, "tetris", "completion p95", what, 0.0)


def _spread(found: Found) -> Iterator[Target]:
    for scene, rows in scenes_of(found, "arrivals-8").items():
        if "60 %" in scene or "80 %" in scene:
            what = f"{scene}: fifo's completion at most 10 % above tetris'"
            yield from _pairs(rows, "fifo", "tetris", "completion", what, 10.0)


def _saturation(found: Found) -> Iterator[Target]:
    figures = scenes_of(found, "saturation")
    published = figures.get("published", {})
    for trace, rows in figures.get("allocated", {}).items():
        fgd = rows["fgd"]
        if trace in published:
            apart = abs(estimate(fgd).mean - published[trace]["fgd"])
            what = f"openb {trace}: fgd within 1 point of the published share"
            yield _within(what, apart, 1.0, "points")
        for objective, limit in (("Packing", 1.0), ("Balanced", 3.0)):
            if f"dqn {objective}" not in rows:
                continue
            ours = rows[f"dqn {objective}"]
            missing = estimate([theirs - mine for mine, theirs in zip(ours, fgd, strict=True)])
            what = f"openb {trace}: dqn {objective} {limit:.0f} points below fgd or less"
            yield _at_most(what, missing, limit, "points")


def _wrong(found: Found) -> Iterator[Target]:
    scenes = scenes_of(found, "faults")
    for scene, wrong in scenes.items():
        if not scene.endswith("wrong profiles"):
            continue
        right = scenes[scene.removesuffix(", wrong profiles")]
        figure = "completion" if "%" in scene else "makespan"
        ours = f"dqn {figure.capitalize()}"
        if ours not in right:
            continue
        apart = against(wrong[ours][figure], right[ours][figure])
        yield _at_most(f"{scene}: cost {ours} at most 10 % of the {figure}", apart, 10.0)


def _speed(found: Found) -> Iterator[Target]:
    for row in scenes_of(found, "speed") or ():
        limit = 20_000 if row["gpus"] == 8 else 2_000
        what = (
            f"simulated jobs a second (CPU), {row['gpus']:,} GPUs that are used {row['used']:.0f} %"
            f", queue up to {row['queue']}: at least {limit:,}"
        )
        yield _within(what, row["jobs a second"], limit, "", least=True)


def _times(found: Found) -> Iterator[Target]:
    for row in chain.from_iterable(scenes_of(found, "times").values()):
        name, jobs, gpus, p99 = row["policy"], row["jobs"], row["gpus"], row["p99_ms"]
        if (jobs, gpus) == (64, 1):
            yield _within(f"{name}: 64 jobs, one GPU: p99 at most 10 ms", p99, 10, "ms")
        if (jobs, gpus) == (10_000, 1000):
            limit = 100 if name in HEURISTICS else 300
            what = f"{name}: 10,000 jobs, 1,000 GPUs: p99 at most {limit} ms"
            yield _within(what, p99, limit, "ms")
