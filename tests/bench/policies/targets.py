"""What the figures must show, and whether they do."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bench.dqn_learning import ALONE
from bench.policies.figures import ratio
from bench.policies.runs import POLICIES, SEARCH

__all__ = ["Target", "best_other", "targets"]

_ROUNDING = 1e-9
"""Share by which two makespans differ that are the same but for the order of additions."""


class Target(NamedTuple):
    """One line of the issue's list."""

    what: str
    measured: str
    met: bool


def best_other(found: Mapping[str, Any]) -> str:
    """Return the policy of least mean makespan on the five workloads that neither searches nor is
    `dqn`."""
    others = [name for name in POLICIES if name not in SEARCH and name != "dqn"]
    return min(others, key=lambda name: mean(found, name))


def mean(found: Mapping[str, Any], policy: str) -> float:
    """Return the mean of a policy's makespans on the five workloads."""
    makespans = [rows[policy]["makespan"]["mean"] for rows in found["study"].values()]
    return float(sum(makespans) / len(makespans))


def targets(found: Mapping[str, Any]) -> list[Target]:
    """Return every target with what was measured, for the sections that ran."""
    checks = {
        "study": _study,
        "strict": _strict,
        "unseen": _unseen,
        "saturation": _saturation,
        "speed": _speed,
        "times": _times,
        "learning": _learning,
    }
    return [target for name, check in checks.items() if name in found for target in check(found)]


def _study(found: Mapping[str, Any]) -> Iterator[Target]:
    best = best_other(found)
    dqn, lookahead = mean(found, "dqn"), mean(found, "lookahead")
    gain = 100 * (1 - dqn / mean(found, best))
    yield Target(
        f"dqn's mean makespan at least 2 % below the best other's ({best})",
        f"{gain:.1f} % below",
        gain >= 2,
    )
    apart = 100 * (dqn / lookahead - 1)
    yield Target("dqn within 3 % of lookahead", f"{apart:+.1f} %", apart <= 3)
    times = [
        rows["dqn"]["decision_ms"]["mean"] / rows["lookahead"]["decision_ms"]["mean"]
        for rows in found["study"].values()
    ]
    share = sum(times) / len(times)
    yield Target("at a tenth of lookahead's decision time", f"{share:.3f} of it", share <= 0.1)
    for workload, rows in found["study"].items():
        ours = rows["dqn"]["makespan"]["values"]
        against_sjf = ratio(ours, rows["sjf"]["makespan"]["values"])["mean"]
        yield Target(
            f"{workload}: dqn's makespan at most sjf's",
            f"{against_sjf:.3f} of it",
            against_sjf <= 1 + _ROUNDING,
        )
        against_best = ratio(ours, rows[best]["makespan"]["values"])["mean"]
        yield Target(
            f"{workload}: dqn at most 1 % above {best}",
            f"{100 * (against_best - 1):+.1f} %",
            against_best <= 1.01,
        )


def _strict(found: Mapping[str, Any]) -> Iterator[Target]:
    row = found["strict"]["random"]["dqn"]
    jobs = row["unslowed"]["mean"]
    yield Target(
        "random, strict slowdown budget: at least 20 of 30 jobs within 5 %",
        f"{jobs:.1f} jobs",
        jobs >= 20,
    )
    if "study" in found:
        sjf = found["study"]["random"]["sjf"]["makespan"]["values"]
        against = ratio(row["makespan"]["values"], sjf)["mean"]
        yield Target(
            "and its makespan at most sjf's", f"{against:.3f} of it", against <= 1 + _ROUNDING
        )


def _unseen(found: Mapping[str, Any]) -> Iterator[Target]:
    for workload, rows in found["unseen"].items():
        for other in ("tetris", "fgd"):
            for figure, name in (("makespan", "makespan"), ("completion", "mean completion")):
                against = ratio(rows["dqn"][figure]["values"], rows[other][figure]["values"])
                yield Target(
                    f"{workload}: dqn's {name} not worse than {other}'s",
                    f"{against['mean']:.3f} of it",
                    against["mean"] <= 1.005,
                )


def _saturation(found: Mapping[str, Any]) -> Iterator[Target]:
    for trace, rows in found["saturation"].items():
        shares = {name: row["mean"] for name, row in rows["policies"].items()}
        published = rows["published"].get("FGD")
        if published is not None:
            apart = shares["fgd"] - published
            yield Target(
                f"openb {trace}: fgd within 1 point of the published {published:.2f} %",
                f"{shares['fgd']:.2f} % ({apart:+.2f})",
                abs(apart) <= 1,
            )
        best = max(shares, key=lambda name: shares[name])
        yield Target(
            f"openb {trace}: our best policy at or above fgd",
            f"{best} {shares[best]:.2f} %",
            shares[best] >= shares["fgd"],
        )


def _speed(found: Mapping[str, Any]) -> Iterator[Target]:
    for row in found["speed"]:
        speed = row["jobs_per_second"]
        yield Target(
            f"at least 2,000 simulated jobs a second (CPU) with GPUs busy {row['gpu']:.0f} %, "
            f"queue up to {row['longest_queue']}",
            f"{speed:,.0f}",
            speed >= 2000,
        )


def _times(found: Mapping[str, Any]) -> Iterator[Target]:
    for row in found["times"]:
        name, jobs, gpus, p99 = row["policy"], row["jobs"], row["gpus"], row["p99_ms"]
        if name in SEARCH:
            continue
        if (jobs, gpus) == (64, 1):
            yield Target(f"{name}: 64 jobs, one GPU: p99 at most 10 ms", f"{p99:.1f} ms", p99 <= 10)
        if (jobs, gpus) == (10_000, 1000):
            limit = 500 if name == "dqn" else 250
            yield Target(
                f"{name}: 10,000 jobs, 1,000 GPUs: p99 at most {limit} ms",
                f"{p99:.0f} ms",
                p99 <= limit,
            )
    yield from _growth(found["times"])


def _growth(times: Sequence[Mapping[str, Any]]) -> Iterator[Target]:
    """Compare the two largest queues: of shorter ones, what no job costs weighs as much."""
    most, before = sorted({row["jobs"] for row in times}, reverse=True)[:2]
    p99 = {(row["policy"], row["gpus"], row["jobs"]): row["p99_ms"] for row in times}
    for policy, gpus in dict.fromkeys((row["policy"], row["gpus"]) for row in times):
        factor, limit = p99[policy, gpus, most] / p99[policy, gpus, before], most // before
        servers = "one GPU" if gpus == 1 else f"{gpus:,} GPUs"
        yield Target(
            f"{policy}: from {before:,} to {most:,} jobs, {servers}: p99 at most {limit} times as "
            "long",
            f"{factor:.1f} times",
            factor <= limit,
        )


def _learning(found: Mapping[str, Any]) -> Iterator[Target]:
    for variant in ("dqn", ALONE):
        runs = [run for run in found["learning"]["runs"] if run["variant"] == variant]
        before, after = (sum(run[at] for run in runs) / len(runs) for at in ("untrained", "last"))
        yield Target(
            f"training {variant} improves with each of {len(runs)} seeds "
            "(held-out workloads, makespan relative to one after the other)",
            f"{before:.3f} untrained, {after:.3f} trained",
            all(run["last"] < run["untrained"] for run in runs),
        )
