"""Writes docs/policies.md from the figures."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from bench.dqn_learning import ABLATIONS, ALONE
from bench.policies.figures import summary
from bench.policies.runs import POLICIES
from bench.policies.sections import STRICT
from partita_research.simulator.study import study as published_study

__all__ = ["render"]

_STUDY = published_study()
_UNPUBLISHED = "-"


def render(found: Mapping[str, Any]) -> str:
    """Return the document."""
    parts: list[str] = [_HEAD.format(machine=found.get("machine", ""))]
    for name, section in _SECTIONS.items():
        if name in found:
            parts.extend(section(found))
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


_HEAD = """
# Policies, measured

Made by `make bench-policies` ({machine}); every figure stands in [policies.json](policies.json).
The simulator's model and its assumptions are told in
[`interference.py`](../policies/partita_policies/interference.py), the study's data in
[`data/`](../policies/partita_research/data), each number marked published, derived or assumed.

Ten seeds each, five on larger workloads and at saturation: measured profiles are off by up to 20 %, runs differ, and the
order of the jobs is another. `±` is half of the 95 % confidence interval of the mean. Policies see
profiles and requests only; how sensitive an application is to a shared cache the simulator alone
knows. `dqn` was trained on random applications: neither the study's nor openb's were among them.
Some of its training workloads are mixes, others lean towards heavy, small, long or link-bound jobs
([`workloads.py`](../policies/partita_research/training/scenarios.py)); all settings were chosen on
held-out workloads of that kind.
"""


def _targets(found: Mapping[str, Any]) -> Iterator[str]:
    yield "## What was to be shown"
    rows = [
        (target["what"], target["measured"], "yes" if target["met"] else "**no**")
        for target in found["targets"]
    ]
    yield _table(("target", "measured", "met"), rows)


def _study(found: Mapping[str, Any]) -> Iterator[str]:
    yield "## The study's five workloads: 30 jobs, one GPU of 12 GB"
    yield "![Makespans](images/policies/makespan.png)"
    rows = []
    for workload, policies in found["study"].items():
        for policy in POLICIES:
            row = policies[policy]
            rows.append(
                (
                    workload if policy == POLICIES[0] else "",
                    policy,
                    _plus_minus(row["makespan"], 0),
                    _published(workload, policy, "makespan"),
                    f"{row['gpu']['mean']:.1f}",
                    _published(workload, policy, "gpu"),
                    f"{row['memory']['mean']:.1f}",
                    _published(workload, policy, "memory"),
                    f"{row['unslowed']['mean']:.1f}",
                    f"{row['worst']['mean']:.2f}",
                    f"{row['kills']['mean']:.1f}",
                    f"{row['decision_ms']['mean']:.2f}",
                )
            )
        if "bounds" in found:
            for name, bound in found["bounds"][workload].items():
                rows.append(("", f"*bound: {name}*", _plus_minus(bound, 0), *[""] * 9))
    header = (
        "workload",
        "policy",
        "makespan, s",
        "study's, s",
        "GPU, %",
        "study's",
        "memory, %",
        "study's",
        "jobs within 5 %",
        "worst slowdown",
        "memory kills",
        "decision, ms",
    )
    yield _table(header, rows)
    yield (
        "The study time-sliced a real GPU (without MPS) and counted its training time in some "
        "totals, so that only SJF's totals, by which the data are calibrated, are comparable as "
        "they stand; the others show the direction."
    )
    yield "\n".join(f"- {note}" for note in _STUDY.notes)
    yield "![Makespan against decision time](images/policies/trade-off.png)"


def _strict(found: Mapping[str, Any]) -> Iterator[str]:
    budget = STRICT["slowdown_budget"]
    yield f"## `dqn` with `slowdown_budget: {budget}`"
    yield (
        "How many of 30 jobs took at most 5 % longer than alone (the study: 20 within 2 % on "
        "random), and what that costs."
    )
    rows = [
        (
            workload,
            f"{policies['dqn']['unslowed']['mean']:.1f}",
            _plus_minus(policies["dqn"]["makespan"], 0),
            _of(found, workload, "sjf"),
            _of(found, workload, "dqn"),
        )
        for workload, policies in found["strict"].items()
    ]
    yield _table(
        ("workload", "jobs within 5 %", "makespan, s", "sjf's", "dqn's without a budget"), rows
    )


def _unseen(found: Mapping[str, Any]) -> Iterator[str]:
    yield "## Workloads that `dqn` was not trained for"
    yield (
        "300 jobs at once: of the study's applications and of held-out random ones on 8 GPUs, and "
        "tasks of the openb trace on two of its nodes with 8 GPUs each."
    )
    rows = [
        (
            workload if policy == next(iter(policies)) else "",
            policy,
            _plus_minus(policies[policy]["makespan"], 0),
            _plus_minus(policies[policy]["completion"], 0),
            f"{policies[policy]['slowdown']['mean']:.2f}",
            f"{policies[policy]['kills']['mean']:.1f}",
            f"{policies[policy]['decision_ms']['mean']:.1f}",
        )
        for workload, policies in found["unseen"].items()
        for policy in policies
    ]
    yield _table(
        (
            "workload",
            "policy",
            "makespan, s",
            "mean completion, s",
            "mean slowdown",
            "memory kills",
            "decision, ms",
        ),
        rows,
    )


def _saturation(found: Mapping[str, Any]) -> Iterator[str]:
    yield "## openb at saturation"
    yield (
        "Percent of the GPUs' capacity allocated after tasks that ask for 130 % of it have "
        "arrived, CPU and memory of the nodes counted, as in section 6.2 of the FGD paper. "
        "Published: its simulator's `analysis_allo_discrete.csv` "
        "(hkust-adsl/kubernetes-scheduler-simulator, commit 8f3d641)."
    )
    yield "![Allocated share](images/policies/saturation.png)"
    names = list(next(iter(found["saturation"].values()))["policies"])
    published = ("FGD", "BestFit", "DotProd", "Random")
    rows = [
        (
            trace,
            *(_plus_minus(row["policies"][name], 2) for name in names),
            *(f"{row['published'][name]:.2f}" for name in published),
        )
        for trace, row in found["saturation"].items()
    ]
    yield _table(("trace", *names, *(f"{name}, published" for name in published)), rows)


def _optimal(found: Mapping[str, Any]) -> Iterator[str]:
    yield "## Distance to the optimum on small instances"
    yield (
        "Five jobs of random; the makespan in terms of the lower bound that CP-SAT proves, told in "
        "[`optimum.py`](../policies/partita_research/simulator/optimum.py). It stays below the "
        "optimum where a job has more than one phase."
    )
    rows = [(policy, _plus_minus(row, 3)) for policy, row in found["optimal"].items()]
    yield _table(("policy", "times the optimum"), rows)


def _times(found: Mapping[str, Any]) -> Iterator[str]:
    yield "## Time of one decision"
    yield "p99 in milliseconds, on one core; the worst of the mixes of jobs that are tried."
    yield "![Growth](images/policies/times.png)"
    columns = sorted({(row["gpus"], row["jobs"]) for row in found["times"]})
    rows = []
    for policy in dict.fromkeys(row["policy"] for row in found["times"]):
        times = {
            (r["gpus"], r["jobs"]): r["p99_ms"] for r in found["times"] if r["policy"] == policy
        }
        rows.append((policy, *(f"{times[c]:.1f}" if c in times else "" for c in columns)))
    header = ("policy", *(f"{jobs:,} jobs, {gpus:,} GPU" for gpus, jobs in columns))
    yield _table(header, rows)


def _learning(found: Mapping[str, Any]) -> Iterator[str]:
    learning = found["learning"]
    seeds = [run for run in learning["runs"] if run["variant"] == "dqn"]
    yield "## Learning"
    yield (
        f"{learning['iterations']} iterations, {len(seeds)} seeds; {learning['validation']} random "
        "workloads that are never learnt from; the makespan as a share of the time that the jobs "
        f"take one after the other. A training takes {_mean(run['seconds'] for run in seeds):.0f} s "
        "of one core."
    )
    yield "![Learning curve](images/policies/learning.png)"
    alone = [run for run in learning["runs"] if run["variant"] == ALONE]
    rows = [
        ("untrained", f"{_mean(run['untrained'] for run in seeds):.4f}", str(len(seeds))),
        (f"untrained, {ALONE}", f"{_mean(run['untrained'] for run in alone):.4f}", str(len(alone))),
    ]
    variants = list(dict.fromkeys(run["variant"] for run in learning["runs"]))
    for variant in variants:
        runs = [run for run in learning["runs"] if run["variant"] == variant]
        row = summary([run["last"] for run in runs])
        rows.append((variant, _plus_minus(row, 4), str(len(runs))))
    rows += [(f"*{name}*", f"{share:.4f}", "") for name, share in learning["baselines"].items()]
    yield _table(("variant", "makespan, share of taking turns", "seeds"), rows)
    yield (
        "`dqn` weighs the network's estimate beside a prior: what the work done in a second is "
        "worth at the prices of a linear programme "
        "([`prices.py`](../policies/partita_policies/dqn/prices.py)). The prior alone is nearly as "
        "good, so its curve hardly rises; the network without it learns most of what the prior "
        "knows."
    )
    if set(ABLATIONS) <= set(variants):
        yield "The ingredients are therefore compared without the prior."


def _mean(values: Iterable[float]) -> float:
    return fmean(list(values))


_SECTIONS = {
    "targets": _targets,
    "study": _study,
    "strict": _strict,
    "unseen": _unseen,
    "saturation": _saturation,
    "optimal": _optimal,
    "times": _times,
    "learning": _learning,
}


def _of(found: Mapping[str, Any], workload: str, policy: str) -> str:
    return _plus_minus(found["study"][workload][policy]["makespan"], 0) if "study" in found else ""


def _published(workload: str, policy: str, figure: str) -> str:
    result = _STUDY.result(workload, policy, figure)
    if result is None:
        return _UNPUBLISHED
    return f"{result.value:g}" + (" (derived)" if result.kind == "derived" else "")


def _plus_minus(row: Mapping[str, Any], digits: int) -> str:
    return f"{row['mean']:.{digits}f} ± {row['ci95']:.{digits}f}"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
