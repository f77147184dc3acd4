"""How well Partita profiles programs, and predicts what two on one GPU do to each other."""

from __future__ import annotations

import statistics
from itertools import combinations

from acceptance.bench import MIB, Bench
from acceptance.clients import run_together
from acceptance.model import predicted
from acceptance.requirements import needs_torch
from acceptance.results import CannotRunError, Check, Findings

__all__ = ["PAIRS", "judge"]

_KINDS = ("inference", "training", "light", "cache-sensitive")
_TOLERANCE = 0.25
"""Median error that a prediction may have. An assumption: what moves a job from one GPU to
another in the policies is a difference of about as much."""
_CONTEXT = 1024 * MIB
"""Bytes that NVML may count with a process beyond what torch holds: CUDA's context. An
assumption; `partita.agent.limits.violations` allows 640 MiB for the driver's share alone."""
_MOST_STEPS = 128

Pair = tuple[str, str]


def _profile(bench: Bench, kind: str, findings: Findings) -> dict[str, float]:
    """Measure what a program uses alone, by the agent's own code; judge that."""
    # It needs pynvml, which may be what is missing.
    from acceptance.sampler import Sampler

    # Alone on the GPU, as a profile's run is: nobody else's memory counts with it.
    with bench.workers(1, mps=False) as (client,):
        idle = Sampler(bench.gpu, client.pid)
        idle.rest(bench.seconds)
        reserved = client.ask("prepare", kind=kind)["reserved"]
        sampler = Sampler(bench.gpu, client.pid)
        client.send("run", seconds=2 * bench.seconds)
        client.receive(meanwhile=sampler)
        steps, peak = sampler.steps(), sampler.trace.peak
    busy = _mean([step.utilization for step in steps])
    findings.expect(len(steps) <= _MOST_STEPS, f"{kind}: the profile has more steps than its bound")
    findings.expect(peak >= reserved, f"{kind}: the profile shows less memory than torch has")
    findings.expect(busy is not None, f"{kind}: the GPU's utilisation is not told")
    if kind == "training":
        at_rest = _mean([step.utilization for step in idle.steps()])
        findings.expect(
            (busy or 0) > (at_rest or 0), "training does not show as busier than a pause"
        )
    if sampler.seen:
        findings.expect(
            peak <= reserved + _CONTEXT, f"{kind}: the profile shows over 1 GiB more than torch has"
        )
    else:
        findings.missing.append(
            f"{kind}: attribution by PID, for the driver does not name the program's PID here"
        )
    return {
        "gpu": busy or 0.0,
        "core": _mean([step.occupancy for step in steps]) or 0.0,
        "memory": float(peak),
        "pcie": _mean([step.pcie for step in steps]) or 0.0,
    }


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def measure(bench: Bench, *, mps: bool) -> dict[Pair, tuple[float, float]]:
    """Return the slowdowns of the two programs of each pair."""
    with bench.workers(len(_KINDS), mps=mps) as started:
        clients = dict(zip(_KINDS, started, strict=True))
        for kind, client in clients.items():
            client.ask("prepare", kind=kind)
        alone = {k: run_together([c], bench.seconds)[0] for k, c in clients.items()}
        slow = {}
        for first, second in combinations(_KINDS, 2):
            pair = [clients[first], clients[second]]
            one, other = run_together(pair, bench.seconds)
            slow[first, second] = one / alone[first], other / alone[second]
    return slow


def judge(
    name: str,
    measured: dict[Pair, tuple[float, float]],
    told: dict[Pair, tuple[float, float]],
    findings: Findings,
) -> None:
    """Set predictions beside what was measured."""
    rows = []
    errors = []
    for pair, times in measured.items():
        for index, kind in enumerate(pair):
            error = told[pair][index] / times[index] - 1
            errors.append(abs(error))
            figures = round(times[index], 2), round(told[pair][index], 2), f"{error:+.0%}"
            rows.append((kind, pair[1 - index], *figures))
    findings.table(
        f"Slowdown with {name}", ("program", "beside", "measured", "predicted", "error"), rows
    )
    median = statistics.median(errors)
    findings.figures[f"median error with {name}"] = f"{median:.0%}"
    findings.figures[f"largest error with {name}"] = f"{max(errors):.0%}"
    findings.expect(
        median <= _TOLERANCE, f"with {name} the median error is {median:.0%}, over {_TOLERANCE:.0%}"
    )


def _pairs(bench: Bench, findings: Findings) -> None:
    uses = {kind: _profile(bench, kind, findings) for kind in _KINDS}
    findings.table(
        "What each program uses alone",
        ("program", "GPU, percent", "SM occupancy, percent", "memory, MiB", "PCIe, MB/s"),
        [
            (
                kind,
                round(use["gpu"], 1),
                round(use["core"], 1),
                int(use["memory"]) >> 20,
                round(use["pcie"] / 1e6, 1),
            )
            for kind, use in uses.items()
        ],
    )
    for name, mps in (("time slicing", False), ("MPS", True)):
        try:
            measured = measure(bench, mps=mps)
        except CannotRunError as error:
            findings.missing.append(f"with MPS: {error}")
            return
        told = {}
        for pair in measured:
            both = [uses[kind] for kind in pair]
            one, other = predicted(both, bench.identity.pcie_bandwidth, mps=mps)
            told[pair] = one, other
        judge(name, measured, told, findings)


PAIRS = Check(
    name="pairs",
    done="Each program is profiled alone: the agent's code samples NVML 10 times a second. Then "
    "each pair of them runs together, with MPS and time-sliced. `partita_policies.interference` "
    "predicts the slowdowns from the profiles, as the policies do.",
    expected="The memory of a profile is what torch holds plus CUDA's context (at most 1 GiB), "
    "training is busier than a pause, and the number of steps stays within its bound. Half of the "
    f"predictions are off by at most {_TOLERANCE:.0%}. The constants of the model were fitted to a "
    "table of older GPUs, and a typical cache sensitivity is assumed.",
    run=_pairs,
    requires=(needs_torch,),
)
