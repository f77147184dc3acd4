"""`partita demo`: the real operator on a simulated cluster, within a minute."""

from typing import TYPE_CHECKING

import click

from partita.cli import terminal
from partita.cli.options import output_option
from partita_research.cli.policy_options import POLICY, chosen_policies

if TYPE_CHECKING:
    from pathlib import Path

    from partita_testcluster.cli.demo_clock import DemoClock
    from partita_testcluster.cli.demo_jobs import JobsDemo
    from partita_testcluster.cli.demo_workloads import WorkloadsDemo

__all__ = ["command"]

_GPU_MEMORY = 24 << 30
_PRODUCT, _SM_COUNT = "NVIDIA A10", 72
"""24 GB and 72 SMs: NVIDIA's A10 data sheet."""
_MACHINES, _GPUS_EACH = 2, 2


@click.command("demo", short_help="Watch jobs share simulated GPUs: start here.")
@click.option(
    "--workloads",
    is_flag=True,
    help="Show services, a notebook and a Job beside SharedGPUJobs instead of the jobs alone.",
)
@click.option("--serve", is_flag=True, help="Keep the cluster until Ctrl-C, to try commands on it.")
@click.option(
    "--policy",
    type=POLICY,
    help="Use this policy instead of the one in examples/10-partition.yaml.",
)
@click.option(
    "--speed",
    type=click.FloatRange(min=1, max=100),
    default=15.0,
    show_default=True,
    help="Simulated seconds that pass in one second.",
)
@output_option("partita_testcluster.cli.demo_result:DemoRows")
def command(*, workloads: bool, serve: bool, policy: str | None, speed: float, output: str) -> None:
    """Run the examples on a simulated cluster and show what happens.

    The demo starts an API server, two nodes with two simulated GPUs each, and the real operator.
    It applies the YAML files in examples/ and shows how their jobs share two of the GPUs. One job
    runs out of memory and starts again with more, one is suspended, and one is too large for any
    GPU. The demo needs no cluster, no GPU and no network, and takes less than a minute.

    With --workloads it applies examples/services instead: a Deployment of a model server, a
    notebook, a Job and three SharedGPUJobs share the two GPUs. The Pods of all of them get their
    slices by ResourceClaims. The Deployment is scaled to more replicas than services may have.

    \b
    Examples:
      partita demo
      partita demo --policy sjf
      partita demo --workloads
      partita demo --workloads --serve
    """  # noqa: D301
    import sys
    from pathlib import Path
    from shutil import rmtree
    from tempfile import mkdtemp

    from partita.cli.run_until_stopped import Stopped, run_until_stopped
    from partita.garbage_collection import collect_often
    from partita_testcluster.cli.demo_clock import DemoClock

    terminal.quiet_logs()
    collect_often()
    if policy is not None:
        chosen_policies(
            [policy], []
        )  # reports a policy that cannot be built before anything starts
    clock = DemoClock(speed)
    demo = _chosen(policy, clock, workloads=workloads)
    folder = Path(mkdtemp(prefix="partita-demo-"))
    try:
        problems = run_until_stopped(_run(demo, folder, clock, output, serve=serve))
    except Stopped:
        rmtree(folder)
        terminal.say("Stopped; nothing is left running.")
        sys.exit(0 if serve else 1)
    except terminal.UserError as error:
        raise terminal.UserError(f"{error.message} (the operator's log is in {folder})") from error
    if problems:
        text = "; ".join(problems)
        raise terminal.UserError(f"{text}: see the operator's log, {folder / 'operator.log'}")
    rmtree(folder)


def _chosen(
    policy: str | None, clock: "DemoClock", *, workloads: bool
) -> "JobsDemo | WorkloadsDemo":
    from partita_testcluster.cli.demo_jobs import JobsDemo
    from partita_testcluster.cli.demo_workloads import WorkloadsDemo
    from partita_testcluster.cli.examples import load_examples, load_workloads

    examples = load_examples(policy)
    if workloads:
        return WorkloadsDemo(examples, load_workloads(), clock)
    return JobsDemo(examples, _GPU_MEMORY, clock)


async def _run(
    demo: "JobsDemo | WorkloadsDemo",
    folder: "Path",
    clock: "DemoClock",
    output: str,
    *,
    serve: bool,
) -> list[str]:
    """Run a demo; return the deviations from the expected results."""
    import asyncio

    from partita.cli.cluster_state import read_state
    from partita_testcluster.cli.demo_display import demo_display
    from partita_testcluster.cli.demo_stage import DemoStage
    from partita_testcluster.cli.local_cluster import sandbox
    from partita_testcluster.nodes import NodeSpec

    machines = [
        NodeSpec(f"sim-{i}", _GPUS_EACH, _GPU_MEMORY, _PRODUCT, _SM_COUNT) for i in range(_MACHINES)
    ]
    kubeconfig = folder / "kubeconfig"
    terminal.say(
        f"{demo.intro} share {demo.gpus} of {_MACHINES * _GPUS_EACH} simulated GPUs. The operator "
        "is real; no program is executed."
    )
    if serve:
        terminal.say(
            f"To look at the cluster from another shell:\n  export KUBECONFIG={kubeconfig}"
        )
    with demo_display() as screen:
        screen.step("starting an API server, simulated nodes and the operator")
        async with sandbox(folder, machines, speed=clock.speed) as box:
            stage = DemoStage(box, screen, clock, demo.sources)
            late = await demo.play(stage)
            state = await read_state(box.kube)
            screen.close()
            report = demo.report(stage, state)
            if output == "table":
                terminal.display(report.picture)
            else:
                terminal.dump(report.data, output)
            problems = [*late, *report.problems]
            if not problems:
                terminal.say(_next_steps(kubeconfig, demo, serve=serve))
            while serve and not problems:
                box.check()
                await asyncio.sleep(1)
    return problems


def _next_steps(kubeconfig: "Path", demo: "JobsDemo | WorkloadsDemo", *, serve: bool) -> str:
    if not serve:
        flags = f"{demo.flags}--serve"
        args = f'"{flags}"' if " " in flags else flags
        return (
            f"\nNext: `partita demo {flags}` (`make demo ARGS={args}`) keeps the cluster, and\n"
            f"docs/{demo.page} shows what to try on it."
        )
    width = max(41, *(len(command) for command, _ in demo.try_next))
    lines = "".join(f"  {command:<{width}}  # {shows}\n" for command, shows in demo.try_next)
    return (
        "\nThe cluster stays up until Ctrl-C. Next, in another shell:\n"
        f"  export KUBECONFIG={kubeconfig}\n{lines}docs/{demo.page} goes on from here."
    )
