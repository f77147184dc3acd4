"""The tables of the benchmark: short ones as Markdown, long ones as rows of a CSV file."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from bench.policies.figures import (
    SIMULATED,
    Estimate,
    Found,
    against,
    best_heuristic,
    compared,
    estimate,
    judged,
    scenes_of,
)
from bench.policies.parts import PARTS, SEEDS

__all__ = [
    "allocated",
    "decisions",
    "faults",
    "glance",
    "learnt",
    "preliminary",
    "results",
    "worse_than_a_heuristic",
]

_WORSE = 2.0
"""Percent above the best heuristic from which a workload is named first."""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def percent(apart: Estimate) -> str:
    """Return a difference with its interval, bold if the interval does not contain 0."""
    if apart.count < 2:
        return f"{apart.mean:+.1f}"
    text = f"{apart.mean:+.1f} ± {apart.half:.1f}"
    return f"**{text}**" if abs(apart.mean) > max(apart.half, 0.05) else text


def value(values: Sequence[float]) -> str:
    """Return a mean with its interval."""
    mean, half, count = estimate(values)
    digits = 0 if abs(mean) >= 100 else 1 if abs(mean) >= 10 else 2
    if count < 2:
        return f"{mean:,.{digits}f}"
    return f"{mean:,.{digits}f} ± {half:,.{digits}f}"


def worse_than_a_heuristic(found: Found) -> str:
    """Name every workload on which `dqn` is more than 2 % worse than the best heuristic."""
    rows = sorted((row for row in judged(found)), key=lambda row: -row.apart.mean)
    worse = [row for row in rows if row.apart.mean > _WORSE]
    count = f"{len(worse)} of {len(rows)} comparisons"
    if not worse:
        return f"None ({count})."
    lines = [
        (row.scene, row.figure, row.policy, row.best, percent(row.apart), str(row.apart.count))
        for row in worse
    ]
    head = ("workload", "judged by", "policy", "best heuristic", "% above it", "n")
    return f"{count}:\n\n{table(head, lines)}"


def preliminary(found: Found) -> str:
    """Say which parts did not run, and how many comparisons have too few seeds; may be empty."""
    rows = [row for row in judged(found) if row.part != "arrivals-1000"]
    few = sum(row.apart.count < SEEDS for row in rows)
    missing = [name for name in PARTS if name not in found]
    said = []
    if few:
        said.append(
            f"{few} of the {len(rows)} comparisons of `dqn` have fewer than {SEEDS} seeds: they "
            "decide nothing."
        )
    if missing:
        said.append(f"Not run yet: {', '.join(missing)}.")
    return f"**These figures are preliminary.** {' '.join(said)}" if said else ""


_GLANCE = (
    ("random", "random 30x1", "makespan", "makespan, 30 jobs at once, 1 GPU"),
    ("at-once", "heavy-tailed 300x8", "makespan", "makespan, 300 at once, 8 GPUs"),
    ("arrivals-8", "random 300x8 poisson 80 %", "completion", "completion, 8 GPUs, load 80 %"),
    ("arrivals-8", "heavy-tailed 300x8 poisson 80 %", "completion", "the same, heavy-tailed"),
    ("arrivals-64", "random 600x64 poisson 80 %", "completion", "completion, 64 GPUs, load 80 %"),
    ("arrivals-64", "random 600x64 poisson 80 %", "completion p95", "its p95"),
)


def glance(found: Found, base: str) -> str:
    """Return all policies on a few workloads, relative to one of them."""
    columns = [
        (scenes_of(found, part)[scene], figure, title)
        for part, scene, figure, title in _GLANCE
        if scene in scenes_of(found, part)
    ]
    shares = scenes_of(found, "saturation").get("allocated", {}).get("default", {})
    names = dict.fromkeys([*(name for rows, _, _ in columns for name in rows), *shares])
    lines = [
        (
            name,
            *(
                percent(compared(rows, name, base, figure)) if name in rows else ""
                for rows, figure, _ in columns
            ),
            f"{estimate(shares[name]).mean:.1f}" if name in shares else "",
        )
        for name in names
    ]
    head = ("policy", *(title for _, _, title in columns), "openb allocated, %")
    return table(head, lines)


def allocated(found: Found) -> str:
    """Return the share of GPUs allocated at saturation, by trace and policy."""
    figures = scenes_of(found, "saturation")
    shares, published = figures.get("allocated", {}), figures.get("published", {})
    names = list(dict.fromkeys(name for rows in shares.values() for name in rows))
    lines = [
        (
            trace,
            *(value(rows[name]) for name in names),
            *(f"{share:.1f}" for share in published.get(trace, {}).values()),
        )
        for trace, rows in shares.items()
    ]
    theirs = ("FGD", "BestFit", "DotProd", "Random")
    return table(("trace", *names, *(f"*{name}*" for name in theirs)), lines)


def decisions(found: Found) -> str:
    """Return the p99 of decisions, by policy and size."""
    rows = list(chain.from_iterable(scenes_of(found, "times").values()))
    sizes = sorted({(row["gpus"], row["jobs"]) for row in rows})
    p99 = {(row["policy"], row["gpus"], row["jobs"]): row["p99_ms"] for row in rows}
    first = {
        row["policy"]: row["first_ms"] for row in rows if (row["gpus"], row["jobs"]) == sizes[-1]
    }
    lines = [
        (name, *(f"{p99[name, gpus, jobs]:.1f}" for gpus, jobs in sizes), f"{first[name]:.0f}")
        for name in dict.fromkeys(row["policy"] for row in rows)
    ]
    return table(("policy", *(f"{jobs:,} x {gpus:,}" for gpus, jobs in sizes), "first"), lines)


def learnt(found: Found) -> str:
    """Return what dqn's network and plans gain over its prior."""
    lines = [
        (objective, name, percent(Estimate(*apart)), str(apart[2]))
        for objective, rows in scenes_of(found, "learning").items()
        for name, apart in rows.items()
    ]
    return table(("objective", "with", "% above its prior", "n"), lines)


def results(found: Found) -> Iterator[Sequence[str]]:
    """Yield the rows of all workloads: times, use of the GPUs and what is paid, each with its interval.

    The interval is half of that of 95 % confidence. A cell is empty where one sample has none.
    """
    yield (
        *("workload", "policy", "n", "judged by", "best heuristic"),
        *chain.from_iterable((name, f"{name} ±") for name in ("% above it", *_COLUMNS)),
    )
    for part in SIMULATED:
        for scene, rows in scenes_of(found, part).items():
            first = "completion" if "%" in scene else "makespan"
            best = best_heuristic(rows, first)
            for name, values in rows.items():
                figures = [estimate(values[figure]) for figure in _COLUMNS.values()]
                apart = compared(rows, name, best, first)
                yield (
                    *(scene, name, str(len(values[first])), first, best),
                    *chain.from_iterable(map(_numbers, (apart, *figures))),
                )


def _numbers(one: Estimate) -> tuple[str, str]:
    return f"{one.mean:.3f}", f"{one.half:.3f}" if one.count > 1 else ""


_COLUMNS = {
    "completion": "completion",
    "p50": "completion p50",
    "p95": "completion p95",
    "p99": "completion p99",
    "waiting": "wait",
    "wait p50": "wait p50",
    "wait p95": "wait p95",
    "wait p99": "wait p99",
    "completion / alone": "stretch",
    "slowdown": "slowdown",
    "makespan": "makespan",
    "GPU used, %": "gpu used",
    "GPU held, %": "gpu held",
    "memory used, %": "memory used",
    "memory held, %": "memory held",
    "GPU-hours": "hours",
    "kills": "kills",
    "unfinished": "unfinished",
    "decision, CPU ms": "decision",
}


def faults(found: Found) -> str:
    """Return what wrong profiles, none, and memory kills cost each policy."""
    scenes = scenes_of(found, "faults")
    columns = [(name.partition(", ")[0], rows) for name, rows in scenes.items() if ", " in name]
    lines = []
    for name in dict.fromkeys(chain.from_iterable(rows for _, rows in columns)):
        cells = []
        for base, rows in columns:
            figure = "completion" if "%" in base else "makespan"
            cells.append(percent(against(rows[name][figure], scenes[base][name][figure])))
        lines.append((name, *cells))
    return table(("policy", *(scene for scene in scenes if ", " in scene)), lines)
