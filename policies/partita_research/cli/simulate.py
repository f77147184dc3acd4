"""`partita simulate`: simulates a workload under several policies."""

from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from partita.cli import terminal
from partita.cli.options import output_option
from partita_research.cli.gpu_options import gpus_option
from partita_research.cli.messages import missing_extra
from partita_research.cli.policy_options import (
    OBJECTIVES,
    Parameter,
    chosen_policies,
    policy_options,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from partita.cli.progress import Report
    from partita_policies.types import GPU, Objective, Policy
    from partita_research.simulator import Result, Simulation
    from partita_research.simulator.workloads import Workload

__all__ = ["command"]

_PICTURES = (".png", ".svg", ".pdf")


@click.command("simulate", short_help="Compare policies on a workload, without a cluster.")
@click.argument("workload")
@policy_options
@click.option(
    "--gpu",
    "gpus",
    multiple=True,
    type=gpus_option(counted=True),
    metavar="PRODUCT:COUNT",
    help="GPUs to run on, such as a100-40gb:4, or any name with its memory: mine:2:24Gi. May be "
    "repeated.  [default: the workload's own]",
)
@click.option(
    "--gpus",
    "nodes",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="GPUs from a file: an openb-style list of nodes (CSV), or a workload file.",
)
@click.option(
    "--sharing",
    type=click.Choice(["MPS", "TimeSlicing", "Exclusive"]),
    default="MPS",
    show_default=True,
    help="How jobs share a GPU.",
)
@click.option(
    "--objective",
    type=OBJECTIVES,
    default="Makespan",
    show_default=True,
    help="What the policies shall achieve, as `spec.objective` of a GPUPartition.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="NUMBER",
    help="Take so many: the first of a file, or of synthetic jobs.  [default: all; synthetic: 100]",
)
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    metavar="NUMBER",
    help="Of all that is drawn: the same seed, the same result.",
)
@click.option(
    "--noise",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.0,
    show_default=True,
    metavar="SHARE",
    help="How far the profiles that policies see may be from the truth; above 0 the order of the "
    "jobs is drawn, too.",
)
@click.option(
    "--services",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.0,
    show_default=True,
    metavar="SHARE",
    help="Let this share of the jobs be services: they start first and never end.",
)
@click.option(
    "--runs",
    type=click.IntRange(1, 100),
    default=1,
    show_default=True,
    metavar="NUMBER",
    help="Run so many times, with this seed and those after it, and show the means.",
)
@output_option("partita_research.cli.simulate_report:Comparison")
@click.option(
    "--picture",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help=f"Draw what ran where, what it used and who waited ({', '.join(_PICTURES)}). With "
    "{policy} in the name each policy has a file of its own.",
)
def command(
    *,
    workload: str,
    policies: tuple[str, ...],
    parameters: tuple[Parameter, ...],
    gpus: "tuple[list[GPU], ...]",
    nodes: Path | None,
    sharing: str,
    objective: str,
    jobs: int | None,
    seed: int,
    noise: float,
    services: float,
    runs: int,
    output: str,
    picture: Path | None,
) -> None:
    """Run WORKLOAD on simulated GPUs under each policy, and compare.

    WORKLOAD is a workload file (YAML), an openb-style list of Pods (CSV), one of the five
    workloads of the DqnGPU study by its name (gpu-heavy, gpu-light, memory-heavy, memory-light,
    random), or `synthetic` for jobs that are drawn. Jobs slow each other down as the model of
    interference says; policies see profiles and requests alone, as in the operator. It needs
    neither a cluster nor a GPU. The exit code is 1 if jobs never started.

    \b
    A workload file (sizes in MiB, times in seconds; `gpus` may be left out):
      applications:
        - {name: mine, duration: 120, steps: [{gpu: 5, memory: 500}, {gpu: 60, memory: 3000}]}
      jobs:
        - {application: mine, count: 20, every: 30}
        - {application: vgg16, priority: 10, memory: 7600}
      gpus:
        - {product: a10, count: 2, memory: 24576}

    \b
    Examples:
      partita simulate random
      partita simulate random --policy tetris --policy sjf --picture random.png
      partita simulate random --noise 0.2 --runs 10
      partita simulate synthetic --services 0.1 --gpu a100-40gb:4
      partita simulate synthetic --jobs 300 --gpu a100-40gb:8 --seed 7
      partita simulate my-jobs.yaml --gpu t4:2 --gpu a10:1 --noise 0.2 -o json
      partita simulate pods.csv --gpus nodes.csv --policy fgd
    """  # noqa: D301
    from partita_policies.types import Objective, Sharing
    from partita_research.cli.simulate_report import never_started, report, report_data
    from partita_research.cli.workload import load, place_asked, place_in

    if picture is not None:
        _can_draw(picture)
    wanted = chosen_policies(policies, parameters)
    if gpus and nodes is not None:
        raise click.UsageError("use either --gpu or --gpus, not both")
    place = place_in(nodes) if nodes is not None else None
    if gpus:
        place = place_asked(gpus)
    if runs > 1 and not noise and not services and workload != "synthetic":
        raise click.UsageError(
            "--runs needs --noise or --services above 0: without them all runs are equal"
        )
    drawn = {
        number: load(
            workload,
            place=place,
            sharing=Sharing(sharing),
            jobs=jobs,
            seed=number,
            noise=noise,
            services=services,
        )
        for number in range(seed, seed + runs)
    }
    first = drawn[seed]
    results, failures = _simulate(list(drawn.values()), wanted, Objective(objective))
    if output == "table":
        terminal.display(report(first, results))
    else:
        terminal.dump(report_data(drawn, results, failures, noise), output)
    if picture is not None and results:
        _draw(picture, first, {name: found[0] for name, found in results.items()})
    if failures:
        said = "; ".join(f"{name} failed: {failure}" for name, failure in failures.items())
        raise terminal.UserError(said)
    if left := never_started(results):
        raise terminal.UserError(left)


def _simulate(
    workloads: "Sequence[Workload]", policies: "Mapping[str, Policy]", objective: "Objective"
) -> "tuple[dict[str, list[Result]], dict[str, str]]":
    """Return the results of all runs, the best policy first, and the errors of failed policies."""
    from partita.cli.progress import progress
    from partita_research.cli.simulate_report import rank

    results: dict[str, list[Result]] = {}
    failures: dict[str, str] = {}
    with progress() as tell:
        for index, (name, policy) in enumerate(policies.items()):
            found = []
            for number, workload in enumerate(workloads):
                simulation = _simulation(workload, objective)
                before, whole = index * len(workloads) + number, len(policies) * len(workloads)
                try:
                    found.append(simulation.run(policy, partial(_tell, tell, name, before, whole)))
                except Exception as error:  # noqa: BLE001 - a policy's fault, which is reported
                    at = f"at {simulation.now:g} s it raised"
                    failures[name] = f"{at} {type(error).__name__}: {error}"
                    break
            else:
                results[name] = found
    return dict(sorted(results.items(), key=lambda item: rank(*item))), failures


def _tell(report: "Report", name: str, before: int, whole: int, share: float) -> None:
    report(name, (before + share) / whole)


def _simulation(workload: "Workload", objective: "Objective") -> "Simulation":
    from partita_research.simulator import Simulation

    try:
        return Simulation(
            workload.tasks,
            workload.gpus,
            sharing=workload.sharing,
            speeds=workload.speeds,
            nodes=workload.nodes,
            objective=objective,
        )
    except ValueError as error:
        raise terminal.UserError(f"{workload.name} cannot be simulated: {error}") from error


def _can_draw(path: Path) -> None:
    if path.suffix.lower() not in _PICTURES:
        raise click.UsageError(f"--picture {path}: end its name in {', '.join(_PICTURES)}")
    if find_spec("matplotlib") is None:
        raise missing_extra("matplotlib", "plot")
    if not path.parent.is_dir():
        raise click.UsageError(f"--picture {path}: create the folder {path.parent} first")


def _draw(path: Path, workload: "Workload", results: "Mapping[str, Result]") -> None:
    from partita_research.cli.charts import draw, save

    parts: Sequence[tuple[Path, Mapping[str, Result]]] = [(path, results)]
    if "{policy}" in path.name:
        parts = [
            (path.with_name(path.name.replace("{policy}", name)), {name: result})
            for name, result in results.items()
        ]
    for file, some in parts:
        try:
            save(draw(some, workload.title), file)
        except OSError as error:
            raise terminal.UserError(f"{file} cannot be written: {error.strerror}") from error
        terminal.say(f"Drawn: {file}")
