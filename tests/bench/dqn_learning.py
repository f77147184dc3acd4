"""Shows that the network learns: curves over several seeds, and what each ingredient brings.

    python tests/bench/dqn_learning.py learning.json --processes 2

Writes JSON: for each variant its points (decisions learnt from, makespan on the validation
workloads as a share of taking turns) by seed, and the same of fifo and tetris to compare with.
"""

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from multiprocessing import get_context
from pathlib import Path
from time import process_time
from typing import Any

__all__ = ["ABLATIONS", "ALONE", "SEEDS", "learning"]

SEEDS = (0, 1, 2, 3, 4)
ABLATIONS: Mapping[str, Mapping[str, Any]] = {
    "without mask": {"mask": False},
    "without double": {"double": False},
    "without dueling": {"dueling": False},
    "with returns over 4 steps": {"steps": 4},
    "without shared scorer": {"shared": False},
    "without prior": {"prior": 0.0},
    "study's update": {"algorithm": "study"},
}
"""Variants of the shipped model's settings, trained with seed 0 each."""
ALONE = "without prior"
"""The network with nothing to lean on: what it learns by itself, over all seeds."""
ITERATIONS = 8
"""Of each training here, a twelfth of the shipped model's: the curve has fallen most by then."""
VALIDATION = 32


def learning(
    processes: int = 2, iterations: int = ITERATIONS, validation: int = VALIDATION
) -> dict[str, Any]:
    """Train all variants.

    Parameters
    ----------
    processes
        How many trainings run at a time, on one thread each.
    iterations
        Of each training.
    validation
        Workloads of noise, never learnt from, on which each network is measured.
    """
    tasks = [("dqn", {"seed": seed}) for seed in SEEDS]
    tasks += [
        (name, {**settings, "seed": seed})
        for name, settings in ABLATIONS.items()
        for seed in (SEEDS if name == ALONE else SEEDS[:1])
    ]
    common = {"iterations": iterations, "validation": validation, "validate_every": 2}
    jobs = [(name, {**common, **settings}) for name, settings in tasks]
    os.environ["OMP_NUM_THREADS"] = "1"
    with get_context("spawn").Pool(processes, maxtasksperchild=1) as pool:
        runs = pool.map(_train, jobs, chunksize=1)
    return {
        "unit": "makespan as a share of the time that the jobs take one after the other",
        "iterations": iterations,
        "validation": validation,
        "baselines": _baselines(validation),
        "runs": runs,
    }


def _train(job: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    import torch

    from partita_policies.dqn.configuration import Training
    from partita_policies.dqn.training import Trainer
    from partita_policies.dqn.workloads import random_scenario

    torch.set_num_threads(1)
    name, settings = job
    start = process_time()
    trainer = Trainer(Training(**settings), random_scenario)
    for _ in trainer.iterations():
        pass
    curve = trainer.progress.curve
    return {
        "variant": name,
        "seed": settings["seed"],
        "untrained": curve[0].makespan,
        "last": curve[-1].makespan,
        "best": trainer.progress.best,
        "seconds": process_time() - start,
        "curve": [point._asdict() for point in curve],
    }


def _baselines(validation: int) -> dict[str, float]:
    from partita_policies import create
    from partita_policies.dqn.workloads import random_scenario
    from partita_policies.simulator.engine import simulate

    drawn = [random_scenario(-1 - number) for number in range(validation)]
    works = [sum(task.truth.duration for task in one.tasks) for one in drawn]
    means = {}
    for name in ("fifo", "sjf", "tetris", "fgd"):
        policy = create(name)
        spans = [simulate(one.tasks, [one.gpu], policy).makespan for one in drawn]
        shares = [span / work for span, work in zip(spans, works, strict=True)]
        means[name] = sum(shares) / len(shares)
    return means


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the results to a file."""
    parser = argparse.ArgumentParser(description="Train all variants and write what came of them.")
    parser.add_argument("output", type=Path)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--iterations", type=int, default=ITERATIONS)
    given = parser.parse_args(arguments)
    result = learning(given.processes, given.iterations)
    given.output.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
