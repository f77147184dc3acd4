"""How well Partita predicts what two programs on one GPU do to each other."""

from __future__ import annotations

import statistics
from itertools import combinations

from acceptance.bench import Bench
from acceptance.clients import Client, run_together
from acceptance.model import predicted
from acceptance.requirements import needs_torch
from acceptance.results import CannotRunError, Check, Findings

__all__ = ["PAIRS", "judge"]

_KINDS = ("inference", "training", "light", "cache-sensitive")
_SIZE = 10240
_TOLERANCE = 0.25
"""Median error that a prediction may have. An assumption: what moves a job from one GPU to
another in the policies is a difference of about as much."""

Pair = tuple[str, str]


def _profile(bench: Bench, client: Client) -> tuple[dict[str, float], float]:
    """Measure what a program uses alone, and the seconds of one pass."""
    # It needs pynvml, which may be what is missing.
    from acceptance.sampler import Sampler

    sampler = Sampler(bench.gpu, client.pid)
    client.send("run", seconds=2 * bench.seconds)
    answer = client.receive(meanwhile=sampler)
    uses = sampler.steps()

    def mean(values: list[float | None]) -> float:
        known = [value for value in values if value is not None]
        return statistics.fmean(known) if known else 0.0

    return {
        "gpu": mean([use.utilization for use in uses]),
        "core": mean([use.occupancy for use in uses]),
        "memory": float(sampler.trace.peak),
        "pcie": mean([use.pcie for use in uses]),
    }, answer["seconds"] / answer["passes"]


def measure(bench: Bench, *, mps: bool) -> dict[Pair, tuple[float, float]]:
    """Return the slowdowns of the two programs of each pair."""
    with bench.sharing(mps=mps) as sharing:
        clients = dict(zip(_KINDS, sharing.start(len(_KINDS)), strict=True))
        for kind, client in clients.items():
            client.ask("prepare", kind=kind, size=_SIZE)
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
    uses = {}
    for kind in _KINDS:
        # Alone on the GPU, as a profile's run is: nobody else's memory counts with it.
        with bench.sharing(mps=False) as sharing:
            (client,) = sharing.start(1)
            client.ask("prepare", kind=kind, size=_SIZE)
            uses[kind], _ = _profile(bench, client)
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
    done="Each program is profiled alone. Then each pair of them runs together, with MPS and "
    "time-sliced. `partita_policies.interference` predicts the slowdowns from the profiles, as "
    "the policies do.",
    expected=f"Half of the predictions are off by at most {_TOLERANCE:.0%}. The constants of the "
    "model were fitted to a table of older GPUs, and a typical cache sensitivity is assumed.",
    run=_pairs,
    seconds=150,
    requires=(needs_torch,),
)
