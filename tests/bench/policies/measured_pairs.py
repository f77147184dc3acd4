"""Compares `partita_policies.interference` with pairs of programs that others have measured.

    PYTHONPATH=tests python -m bench.policies.measured_pairs --lucid FOLDER --gavel FILE

Lucid (S-Lab-System-Group/Lucid, `simulation/`): the utilisation and memory of 66 training
configurations alone, and the speeds of 1,388 pairs, on an RTX 3090. No constant of the model was
chosen on them. Its licence forbids commercial use, so its data is not part of this repository.

Gavel (stanford-futuredata/gavel, `scheduler/simulation_throughputs.json`, MIT licence): speeds of
pairs on K80, P100 and V100, without utilisation. One demand for SMs is fitted to each program on a
random half of the pairs; the other half shows whether fair sharing is the right form.
"""

import argparse
import ast
import csv
import json
from collections.abc import Iterable, Mapping
from itertools import combinations_with_replacement
from math import exp, log
from pathlib import Path
from random import Random
from statistics import fmean, stdev

from partita_policies.interference import Load, load_of, slowdowns
from partita_policies.types import GPU, Sharing, Step

__all__ = ["gavel_pairs", "held_out_error", "lucid_pairs", "main"]

Speeds = tuple[float, float]
_DEMANDS = [0.05 * step for step in range(25)]
_ROUNDS = 6
_SPLITS = 5
_BOTH_BUSY = 0.25


def main() -> None:
    """Print the errors of the speeds, where 1 is the speed alone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lucid", type=Path, help="checkout of Lucid")
    parser.add_argument("--gavel", type=Path, help="simulation_throughputs.json of Gavel")
    given = parser.parse_args()
    if not (given.lucid or given.gavel):
        parser.error("nothing to compare with: give --lucid or --gavel")
    if given.lucid:
        _print_lucid(lucid_pairs(given.lucid / "simulation"))
    if given.gavel:
        data = json.loads(given.gavel.read_text(encoding="utf-8"))
        for product in ("v100", "p100", "k80"):
            pairs = gavel_pairs(data[product])
            errors = [held_out_error(pairs, Random(split)) for split in range(_SPLITS)]
            print(
                f"Gavel, {product}: {len(pairs)} pairs; mean absolute error of the speeds of the "
                f"half not fitted {fmean(errors):.3f} ({min(errors):.3f} to {max(errors):.3f}, "
                f"{_SPLITS} splits)"
            )


def lucid_pairs(folder: Path) -> list[tuple[Load, Load, Speeds]]:
    """Return the loads of both programs of each pair, and their speeds."""
    card = GPU("", "", 24 << 30, 2)
    alone = {}
    with (folder / "analyzer" / "single_data.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            step = Step(
                gpu=float(row["gpu_util"]),
                memory=int(float(row["gmem"]) * 2**20),
                bandwidth=float(row["gmem_util"]),
            )
            alone[row["model"], row["dataset"], row["batchsize"], row["amp"]] = load_of(step, card)
    pairs = []
    with (folder / "data" / "colocate_info.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            one, other = (
                alone[tuple(row[f"{name}{n}"] for name in ("model", "dataset", "batchsize", "amp"))]
                for n in (1, 2)
            )
            pairs.append((one, other, (float(row["speed1"]), float(row["speed2"]))))
    return pairs


def _print_lucid(pairs: Iterable[tuple[Load, Load, Speeds]]) -> None:
    errors: list[float] = []
    deviations: dict[bool, list[float]] = {True: [], False: []}
    busy: list[tuple[float, float]] = []
    for one, other, measured in pairs:
        predicted = [1 / slow for slow in slowdowns([one, other], Sharing.MPS)]
        errors += [there - here for there, here in zip(predicted, measured, strict=True)]
        both_busy = one.busy * other.busy >= _BOTH_BUSY
        deviations[both_busy] += [
            log(there / here) for there, here in zip(predicted, measured, strict=True)
        ]
        if min(one.busy, other.busy) >= 0.9:
            busy.append((sum(predicted), sum(measured)))
    print(
        f"Lucid, RTX 3090: {len(errors) // 2} pairs; mean absolute error of the speeds "
        f"{fmean(map(abs, errors)):.3f}, bias {fmean(errors):+.3f}; of the {len(busy)} pairs with "
        f"both at least 90 % busy, the sum of the speeds is predicted {fmean(p for p, _ in busy):.2f}"
        f", measured {fmean(m for _, m in busy):.2f}; deviation of the logarithm of measured / "
        f"predicted slowdown {stdev(deviations[True]):.3f} ({len(deviations[True])} programs that "
        f"are busy at the same time for {_BOTH_BUSY:.0%} or more), "
        f"{stdev(deviations[False]):.3f} ({len(deviations[False])} others), at most a factor of "
        f"{exp(max(abs(one) for some in deviations.values() for one in some)):.2f}"
    )


def gavel_pairs(table: Mapping[str, Mapping[str, object]]) -> dict[tuple[str, str], Speeds]:
    """Return the speeds of each pair of programs with one GPU each that fit it together."""
    alone = {
        name: row["null"]
        for name, row in table.items()
        if ast.literal_eval(name)[1] == 1 and isinstance(row["null"], float) and row["null"] > 0
    }
    pairs: dict[tuple[str, str], Speeds] = {}
    for (one, first), (other, second) in combinations_with_replacement(sorted(alone.items()), 2):
        both = table[one].get(other)
        if isinstance(both, list) and min(both) > 0:
            pairs[one, other] = (both[0] / first, both[1] / second)
    return pairs


def held_out_error(pairs: Mapping[tuple[str, str], Speeds], random: Random) -> float:
    """Fit a demand for SMs to each program on half of the pairs; return the error on the others."""
    names = sorted({name for pair in pairs for name in pair})
    order = sorted(pairs)
    random.shuffle(order)
    fitted, held_out = order[: len(order) // 2], order[len(order) // 2 :]
    demand = dict.fromkeys(names, 0.5)

    def error(among: Iterable[tuple[str, str]]) -> float:
        return fmean(
            abs(1 / slow - speed)
            for pair in among
            for slow, speed in zip(
                slowdowns([_busy(demand[name]) for name in pair], Sharing.MPS),
                pairs[pair],
                strict=True,
            )
        )

    for _ in range(_ROUNDS):
        for name in names:
            touched = [pair for pair in fitted if name in pair]
            if touched:
                tried = {}
                for amount in _DEMANDS:
                    demand[name] = amount
                    tried[amount] = error(touched)
                demand[name] = min(tried, key=tried.__getitem__)
    return error(held_out)


def _busy(demand: float) -> Load:
    return Load(busy=min(demand, 1.0), sm=demand, pcie=0, memory=0, cache=0, limit=2)


if __name__ == "__main__":
    main()
