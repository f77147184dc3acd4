"""The plots of docs/policies.md."""

from collections.abc import Mapping
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from bench.dqn_learning import ALONE
from bench.policies.runs import POLICIES

__all__ = ["draw"]

mpl.use("agg")

COLOURS = dict(
    zip(
        POLICIES,
        ("#8c8c8c", "#595959", "#4c9fd6", "#2b6ca3", "#e0a458", "#b87333", "#7a5ea8", "#2a9d5c"),
        strict=True,
    )
)
_STYLE = {
    "figure.dpi": 110,
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.alpha": 0.3,
    "axes.axisbelow": True,
}


def draw(found: Mapping[str, Any], folder: Path) -> None:
    """Draw a plot for each section that ran."""
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(_STYLE):
        if "study" in found:
            _makespans(found, folder / "makespan.png")
            _decisions(found, folder / "trade-off.png")
        if "saturation" in found:
            _saturation(found["saturation"], folder / "saturation.png")
        if "times" in found:
            _times(found["times"], folder / "times.png")
        if "learning" in found:
            _curves(found["learning"], folder / "learning.png")


def _save(path: Path) -> None:
    plt.tight_layout()
    plt.savefig(path, metadata={"Software": None})
    plt.close()


def _makespans(found: Mapping[str, Any], path: Path) -> None:
    """Makespans in terms of sjf's, with 95 % intervals, and the lower bound."""
    _, axes = plt.subplots(figsize=(9, 3.6))
    width = 0.8 / len(POLICIES)
    workloads = list(found["study"])
    for index, policy in enumerate(POLICIES):
        for place, workload in enumerate(workloads):
            rows = found["study"][workload]
            base = rows["sjf"]["makespan"]["mean"]
            bar = rows[policy]["makespan"]
            axes.bar(
                place + (index - (len(POLICIES) - 1) / 2) * width,
                bar["mean"] / base,
                width * 0.92,
                yerr=bar["ci95"] / base,
                color=COLOURS[policy],
                error_kw={"elinewidth": 0.7},
                label=policy if place == 0 else None,
            )
    for place, workload in enumerate(workloads):
        bound = found["bounds"][workload]["mixture"]["mean"]
        base = found["study"][workload]["sjf"]["makespan"]["mean"]
        axes.hlines(
            bound / base,
            place - 0.42,
            place + 0.42,
            colors="#c0392b",
            linestyles=":",
            label="lower bound" if place == 0 else None,
        )
    axes.set_xticks(range(len(workloads)), workloads)
    axes.set_ylabel("makespan, in terms of sjf's")
    axes.legend(ncols=5, fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, 1.22))
    _save(path)


def _decisions(found: Mapping[str, Any], path: Path) -> None:
    """Mean makespan against decision time."""
    _, axes = plt.subplots(figsize=(5.4, 3.4))
    for policy in POLICIES:
        rows = [workload[policy] for workload in found["study"].values()]
        time = sum(row["decision_ms"]["mean"] for row in rows) / len(rows)
        makespan = sum(row["makespan"]["mean"] for row in rows) / len(rows)
        axes.scatter(time, makespan, color=COLOURS[policy], s=42, zorder=3)
        axes.annotate(policy, (time, makespan), textcoords="offset points", xytext=(6, 3))
    axes.set_xscale("log")
    axes.set_xlabel("decision time, ms (mean; log)")
    axes.set_ylabel("makespan, s (mean of the five)")
    axes.margins(x=0.2, y=0.12)
    _save(path)


def _saturation(found: Mapping[str, Any], path: Path) -> None:
    _, axes = plt.subplots(figsize=(7.2, 3.2))
    traces = list(found)
    names = list(next(iter(found.values()))["policies"])
    width = 0.8 / (len(names) + 1)
    for place, trace in enumerate(traces):
        rows = found[trace]
        bars = [(name, rows["policies"][name], COLOURS[name]) for name in names]
        for index, (name, bar, colour) in enumerate(bars):
            axes.bar(
                place + (index - len(names) / 2) * width,
                bar["mean"],
                width * 0.92,
                yerr=bar["ci95"],
                color=colour,
                error_kw={"elinewidth": 0.7},
                label=name if place == 0 else None,
            )
        axes.hlines(
            rows["published"]["FGD"],
            place - 0.45,
            place + 0.45,
            colors="#c0392b",
            linestyles=":",
            label="FGD as published" if place == 0 else None,
        )
    axes.set_xticks(range(len(traces)), traces)
    axes.set_ylim(70, 100)
    axes.set_ylabel("GPU capacity allocated, %")
    axes.legend(ncols=5, fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, 1.2))
    _save(path)


def _times(rows: list[Mapping[str, Any]], path: Path) -> None:
    _, both = plt.subplots(1, 2, figsize=(9, 3.2), sharey=True)
    for axes, gpus in zip(both, (1, 1000), strict=True):
        _growth(axes, [row for row in rows if row["gpus"] == gpus])
        axes.set_title(f"{gpus:,} GPU{'s' if gpus > 1 else ''}", fontsize=9)
        axes.set_xlabel("queued jobs")
    both[0].set_ylabel("p99 of a decision, ms")
    both[0].legend(fontsize=8, frameon=False)
    _save(path)


def _growth(axes: Axes, rows: list[Mapping[str, Any]]) -> None:
    for policy in dict.fromkeys(row["policy"] for row in rows):
        own = [row for row in rows if row["policy"] == policy]
        axes.plot(
            [row["jobs"] for row in own],
            [row["p99_ms"] for row in own],
            marker="o",
            markersize=3,
            color=COLOURS[policy],
            label=policy,
        )
    axes.set_xscale("log")
    axes.set_yscale("log")


def _curves(found: Mapping[str, Any], path: Path) -> None:
    """Median and quartiles over the seeds, with the heuristics as lines."""
    _, axes = plt.subplots(figsize=(6.4, 3.6))
    for variant, colour in (("dqn", COLOURS["dqn"]), (ALONE, "#c0392b")):
        curves = [run["curve"] for run in found["runs"] if run["variant"] == variant]
        steps = [point["iteration"] for point in curves[0]]
        columns = [[curve[i]["makespan"] for curve in curves] for i in range(len(steps))]
        quarters = [quantiles(column, n=4, method="inclusive") for column in columns]
        low, high = ([quarter[end] for quarter in quarters] for end in (0, 2))
        axes.fill_between(steps, low, high, color=colour, alpha=0.25, linewidth=0)
        middle = [median(column) for column in columns]
        axes.plot(steps, middle, color=colour, marker="o", markersize=3, label=variant)
    for name, makespan in found["baselines"].items():
        if makespan < 0.6:  # sjf, far above, would press the rest together
            axes.axhline(makespan, color=COLOURS[name], linestyle=":", label=name)
    axes.set_xlabel("iterations")
    axes.set_ylabel("makespan on held-out workloads,\nas a share of taking turns")
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    _save(path)
