"""`partita train`: trains a policy that learns, on simulated workloads."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click

from partita.cli import terminal
from partita.cli.options import output_option
from partita_research.cli.messages import missing_extra, warn_of_rejected

if TYPE_CHECKING:
    from collections.abc import Callable

    from partita_policies.network import Network
    from partita_policies.types import Policy
    from partita_research.training.scenarios import Scenario

__all__ = ["command"]


class _Learnt(NamedTuple):
    """What was learnt, and the policy as it was before."""

    network: "Network"
    before: "Policy"
    training: dict[str, float | str]
    curves: dict[str, list[float]]
    correlations: dict[str, list[float]]


@click.command("train", short_help="Train dqn or deeprm on simulated workloads.")
@click.argument("model", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--policy",
    type=click.Choice(["dqn", "deeprm-max", "deeprm-mean"]),
    default="dqn",
    show_default=True,
    help="The policy that learns.",
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
    "--workloads",
    type=click.IntRange(min=2),
    default=400,
    show_default=True,
    help="Workloads on which the trained policy is compared with the untrained one.",
)
@click.option(
    "--update",
    type=click.Choice(["q", "study"]),
    default="q",
    show_default=True,
    help="What dqn learns from a choice: its value, or its probability, as in the DqnGPU study.",
)
@output_option("partita_research.training.held_out:TrainReport")
def command(
    *,
    model: Path,
    policy: Literal["dqn", "deeprm-max", "deeprm-mean"],
    snapshots: tuple[Path, ...],
    seed: int,
    iterations: int | None,
    update: Literal["q", "study"],
    workloads: int,
    output: str,
) -> None:
    """Train the networks of a policy and write them to MODEL.

    They learn on simulated workloads of random applications, or with --snapshots of the
    applications in recordings of a cluster; dqn has one network for each objective. The same seed
    gives the same networks. At the end, the policy is compared with the untrained one on workloads
    that it did not learn from, without plans. If a network is not better there, by an interval
    clear of 0, the exit code is 1, MODEL is left as it was, and the networks are written to
    MODEL.not-better.

    \b
    Examples:
      partita train model.npz
      partita train model.npz --snapshots recordings/
      partita train model.npz --policy deeprm-max --seed 1
      partita simulate jobs.yaml --policy dqn --parameter model=model.npz
    """  # noqa: D301
    from importlib.util import find_spec

    if find_spec("torch") is None:
        raise missing_extra("torch", "train")
    from partita_policies import Objective, create
    from partita_policies.planner.policy import GOALS
    from partita_research.training.held_out import TrainReport, held_out

    draw = _scenarios(snapshots)
    settings: dict[str, Any] = {"seed": seed}
    if iterations is not None:
        settings["iterations"] = iterations
    if policy == "dqn":
        learnt = _learn_dqn({**settings, "update": update}, draw)
        objectives, served = list(GOALS), {"work": 0}
    else:
        learnt = _learn_deeprm(policy, settings, draw)
        objectives, served = [Objective.MAKESPAN], {}
    unproven = model.with_name(f"{model.name}.not-better")
    try:
        learnt.network.save(unproven)
    except OSError as error:
        raise terminal.UserError(f"{error.filename}: {error.strerror}") from error
    after = create(policy, {"model": str(unproven), **served})
    better = {
        objective.value: held_out(
            after, learnt.before, draw, objective=objective, workloads=workloads
        )
        for objective in objectives
    }
    if output != "table":
        report = TrainReport(learnt.training, learnt.curves, learnt.correlations, better)
        terminal.dump(report, output)
    for name, one in better.items():
        terminal.say(f"{model}: {name}, all jobs at once, against the untrained policy: {one}")
    if worse := [name for name, one in better.items() if not one.clear]:
        raise terminal.UserError(
            f"{' and '.join(worse)}: not clearly better than the untrained policy, so {model} was "
            f"not written, but {unproven}: train with more --iterations, or compare with more "
            "--workloads"
        )
    unproven.replace(model)


def _learn_dqn(settings: dict[str, Any], draw: "Callable[[int], Scenario]") -> _Learnt:
    from partita.cli.progress import progress
    from partita_policies.dqn.policy import KIND, VERSION
    from partita_policies.network import Network
    from partita_policies.planner import Planner, PlannerParameters
    from partita_policies.planner.policy import GOALS
    from partita_research.training.deep_q import Training, train
    from partita_research.training.scenarios import training_workload

    training, arrays = Training(**settings), {}
    curves: dict[str, list[float]] = {}
    correlations: dict[str, list[float]] = {}
    with progress() as tell:
        for index, (objective, goal) in enumerate(GOALS.items()):
            curve = curves[goal.name] = []
            correlation = correlations[goal.name] = []
            for now in train(training, objective, partial(training_workload, draw)):
                arrays[goal.name] = now.weights
                curve.append(now.gain)
                correlation.append(now.correlation)
                done = (index + now.iteration / training.iterations) / len(GOALS)
                tell(f"learning for {objective}", done)
    about = {"kind": KIND, "version": VERSION, "training": training.model_dump()}
    before = Planner(PlannerParameters(work=0))
    return _Learnt(Network(arrays, about), before, training.model_dump(), curves, correlations)


def _learn_deeprm(
    policy: str, settings: dict[str, Any], draw: "Callable[[int], Scenario]"
) -> _Learnt:
    from partita.cli.progress import progress
    from partita_policies.deeprm import VERSION, DeepRMMax, DeepRMMean, DeepRMParameters
    from partita_policies.network import Network
    from partita_research.training.deeprm import DeepRMTraining, train

    kind = DeepRMMax if policy == "deeprm-max" else DeepRMMean
    training = DeepRMTraining(**settings)
    about = {"kind": policy, "version": VERSION, "training": training.model_dump()}
    steps = train(kind, training, draw)
    first, curve = Network(next(steps).weights, about), []
    with progress() as tell:
        for now in steps:
            curve.append(now.makespan)
            tell("learning", now.iteration / training.iterations)
    before = kind(DeepRMParameters(), first)
    return _Learnt(Network(now.weights, about), before, training.model_dump(), {policy: curve}, {})


def _scenarios(snapshots: tuple[Path, ...]) -> "Callable[[int], Scenario]":
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
        warn_of_rejected(seen.refused)
        return recorded_scenarios(seen)
    except OSError as error:
        raise terminal.UserError(f"{error.filename} cannot be read: {error.strerror}") from error
    except NoApplicationsError as error:
        raise terminal.UserError(
            f"{', '.join(map(str, snapshots))}: {error}; record with `partita run --record` "
            "while such jobs run"
        ) from error
