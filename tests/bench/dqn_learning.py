"""Shows that the network learns: curves over several seeds, and what each ingredient brings.

    PYTHONPATH=tests python -m bench.dqn_learning learning.json --processes 2

Writes JSON: for each variant its points (decisions learnt from, makespan on the validation
workloads as a share of taking turns) by seed, and the same of fifo and tetris to compare with.
Each training is kept in `KEPT` as soon as it is done, so that a run that was stopped goes on where
it was; what other code or other settings made is not taken over.
"""

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib.resources import files
from multiprocessing import get_context
from pathlib import Path
from time import process_time
from typing import Any

from rich.progress import track

__all__ = ["ABLATIONS", "ALONE", "SEEDS", "Job", "learning", "resumed"]

SEEDS = (0, 1, 2, 3, 4)
_FEW = 3
"""Seeds of each ablation."""
ALONE = "without prior"
"""The network with nothing to lean on: what it learns by itself, over all seeds."""
ABLATIONS: Mapping[str, Mapping[str, Any]] = {
    ALONE: {},
    "without prior or mask": {"mask": False},
    "without prior or double": {"double": False},
    "without prior or dueling": {"dueling": False},
    "without prior, returns over 4 steps": {"steps": 4},
    "without prior or shared scorer": {"shared": False},
    "the study's update, without prior": {"algorithm": "study"},
}
"""What each differs in from the shipped model's settings, besides the prior: whoever leans on it
does almost as well without having learnt, and what the learning is worth would not show."""
ITERATIONS = 16
"""Of each training here, a sixth of the shipped model's."""
VALIDATION = 40
KEPT = Path(__file__).parents[2] / ".cache" / "dqn-learning.jsonl"

Job = tuple[str, dict[str, Any]]
"""A variant's name and its settings."""


def learning(
    processes: int = 2,
    iterations: int = ITERATIONS,
    validation: int = VALIDATION,
    kept: Path = KEPT,
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
    kept
        Where trainings are kept until all are done.
    """
    common = {"iterations": iterations, "validation": validation, "validate_every": 4}
    jobs = [
        (name, {**common, **settings, "seed": seed})
        for seed in SEEDS
        for name, settings in _variants(seed).items()
    ]
    runs = resumed(jobs, kept)
    os.environ["OMP_NUM_THREADS"] = "1"
    left = [job for job in jobs if not any(_is_of(run, job) for run in runs)]
    with get_context("spawn").Pool(processes, maxtasksperchild=1) as pool, kept.open("a") as file:
        for run in track(pool.imap_unordered(_train, left), "trainings", len(left)):
            file.write(json.dumps(run) + "\n")
            file.flush()
            runs.append(run)
    order = ["dqn", *ABLATIONS]
    found = {
        "unit": "makespan as a share of the time that the jobs take one after the other",
        "iterations": iterations,
        "validation": validation,
        "baselines": _baselines(validation),
        "runs": sorted(runs, key=lambda run: (order.index(run["variant"]), run["seed"])),
    }
    kept.unlink()
    return found


def _variants(seed: int) -> dict[str, Mapping[str, Any]]:
    alone = {name: {"prior": 0.0, **settings} for name, settings in ABLATIONS.items()}
    if seed >= _FEW:
        alone = {ALONE: alone[ALONE]}
    return {"dqn": {}, **alone}


def resumed(jobs: Sequence[Job], kept: Path) -> list[dict[str, Any]]:
    """Return the trainings that are done already, by this very code."""
    code = sha256(json.dumps(jobs).encode())
    for path in sorted(Path(str(files("partita_policies"))).rglob("*.py")):
        code.update(path.read_bytes())
    first = json.dumps({"code": code.hexdigest()}) + "\n"
    text = kept.read_text(encoding="utf-8") if kept.exists() else ""
    # A line that was not written to its end is none.
    lines = [line for line in text.splitlines(keepends=True) if line.endswith("\n")]
    if lines[:1] != [first]:
        lines = [first]
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text("".join(lines), encoding="utf-8")
    return [json.loads(line) for line in lines[1:]]


def _is_of(run: Mapping[str, Any], job: Job) -> bool:
    return bool((run["variant"], run["seed"]) == (job[0], job[1]["seed"]))


def _train(job: Job) -> dict[str, Any]:
    import torch

    from partita_policies.dqn.configuration import Training
    from partita_research.training.scenarios import random_scenario
    from partita_research.training.trainer import Trainer

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
    from partita_research.simulator.engine import simulate
    from partita_research.training.scenarios import random_scenario

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
