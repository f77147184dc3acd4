"""`partita train`: trains the policy dqn on simulated workloads."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from partita.cli import terminal
from partita.cli.options import output_option
from partita_research.cli.extras import missing_extra

if TYPE_CHECKING:
    from partita_research.training.trainer import Point, Scenarios, Trainer

__all__ = ["command"]

_REFUSED_SHOWN = 5
"""Skipped lines of recordings that are reported one by one."""


@click.command("train", short_help="Train the policy dqn on simulated workloads.")
@click.argument("model", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--algorithm",
    type=click.Choice(["dqn", "study"]),
    default="dqn",
    show_default=True,
    help="Deep Q-learning, or the update of the DqnGPU study for comparison.",
)
@click.option(
    "--snapshots",
    type=click.Path(exists=True, path_type=Path),
    multiple=True,
    metavar="DIR",
    help="Learn from the applications in these recordings instead of random ones.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--iterations",
    type=click.IntRange(min=1),
    help="Number of iterations.  [default: those of the shipped model]",
)
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    default="cpu",
    show_default=True,
    help="Where the network is computed; the simulations run on the CPU.",
)
@click.option(
    "--checkpoint",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Save the progress in this file, and continue from it if it exists.",
)
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Draw the learning curve into this PNG (needs the extra plot).",
)
@output_option()
def command(
    *,
    model: Path,
    algorithm: str,
    snapshots: tuple[Path, ...],
    seed: int,
    iterations: int | None,
    device: str,
    checkpoint: Path | None,
    plot: Path | None,
    output: str,
) -> None:
    """Train a network for the policy dqn and write it to MODEL, an ONNX file.

    It learns on simulated workloads of random applications, or with --snapshots of the applications
    in recordings of a cluster. It keeps the network with the shortest makespan on workloads that
    it does not learn from. The same seed gives the same network. A training that was stopped
    continues from its checkpoint with the same result.

    \b
    Examples:
      partita train model.onnx
      partita train model.onnx --snapshots recordings/ --checkpoint training.safetensors
      partita simulate jobs.yaml --policy dqn --parameter model=model.onnx
    """  # noqa: D301
    _need("torch", "onnx", "safetensors", **({"matplotlib": "plot"} if plot else {}))
    import torch

    from partita_policies.dqn.configuration import Training
    from partita_research.training.checkpoint import CheckpointError
    from partita_research.training.export import export
    from partita_research.training.network import SharedScorer
    from partita_research.training.trainer import Trainer

    if device == "cuda" and not torch.cuda.is_available():
        raise terminal.UserError("torch finds no usable GPU: use --device cpu")
    settings: dict[str, Any] = {"algorithm": algorithm, "seed": seed}
    if iterations is not None:
        settings["iterations"] = iterations
    # The network is so small that a second thread costs more than it gains.
    torch.set_num_threads(1)
    trainer = Trainer(Training(**settings), _scenarios(snapshots), device)
    try:
        _run(trainer, checkpoint)
    except CheckpointError as error:
        raise terminal.UserError(str(error)) from error
    try:
        network = trainer.network()
        assert isinstance(network, SharedScorer)  # noqa: S101 - no option asks for the other
        export(network, trainer.training, trainer.known, model)
        if plot is not None:
            _draw(trainer.progress.curve, plot)
    except OSError as error:
        raise terminal.UserError(f"{error.filename}: {error.strerror}") from error
    if output != "table":
        terminal.dump(_report(trainer), output)
    best = trainer.progress.best
    terminal.say(
        f"{model}: on workloads that it did not learn from, the makespan is {best:.1%} of running "
        f"one job after the other; untrained {trainer.progress.curve[0].makespan:.1%}."
    )


def _need(*modules: str, **others: str) -> None:
    """Raise an error with the command that installs a missing module."""
    from importlib.util import find_spec

    for module, extra in {**dict.fromkeys(modules, "train"), **others}.items():
        if find_spec(module) is None:
            raise missing_extra(module, extra)


def _scenarios(snapshots: tuple[Path, ...]) -> "Scenarios":
    from partita_research.training.scenarios import (
        NoApplicationsError,
        random_scenario,
        recorded_scenarios,
        seen_in,
    )

    if not snapshots:
        return random_scenario
    try:
        seen = seen_in(snapshots)
        for refused in seen.refused[:_REFUSED_SHOWN]:
            terminal.warn(str(refused))
        if len(seen.refused) > _REFUSED_SHOWN:
            terminal.warn(f"and {len(seen.refused) - _REFUSED_SHOWN} more lines are skipped")
        return recorded_scenarios(seen)
    except OSError as error:
        raise terminal.UserError(f"{error.filename} cannot be read: {error.strerror}") from error
    except NoApplicationsError as error:
        raise terminal.UserError(
            f"{', '.join(map(str, snapshots))}: {error}; record with `partita run --record` "
            "while such jobs run"
        ) from error


def _run(trainer: "Trainer", checkpoint: Path | None) -> None:
    from partita.cli.progress import progress
    from partita_research.training.checkpoint import load, save

    if checkpoint is not None and checkpoint.exists():
        load(trainer, checkpoint)
    total = trainer.training.iterations
    with progress() as tell:
        tell("learning", trainer.progress.iteration / total)
        for done in trainer.iterations():
            latest = done.curve[-1].makespan
            tell(f"learning, makespan {latest:.1%} of turns", done.iteration / total)
            validated = done.curve[-1].iteration == done.iteration
            if checkpoint is not None and validated:
                save(trainer, checkpoint)


def _report(trainer: "Trainer") -> dict[str, Any]:
    return {
        "training": trainer.training.model_dump(),
        "best": trainer.progress.best,
        "curve": [point._asdict() for point in trainer.progress.curve],
    }


def _draw(curve: "list[Point]", path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot([point.decisions for point in curve], [point.makespan for point in curve], marker=".")
    axes.set_xlabel("decisions learnt from")
    axes.set_ylabel("makespan, as a share of taking turns")
    figure.savefig(path, format="png")
