"""`partita demo`: the real operator on a simulated cluster, within a minute."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from partita.cli import terminal
from partita_research.cli.policy_options import POLICY, chosen_policies

if TYPE_CHECKING:
    from pathlib import Path

    from partita.informer.state import State
    from partita_testcluster.cli.demo_display import DemoDisplay
    from partita_testcluster.cli.demo_events import DemoEvents
    from partita_testcluster.cli.examples import Examples
    from partita_testcluster.cli.local_cluster import Sandbox

__all__ = ["command"]

_POLL = 0.2
"""Seconds between two reads of the cluster."""
_STARTED_WITHIN = 45.0
"""Seconds for the GPUs to become ready; most of it is a reserve for slow machines."""
_SIMULATED_LIMIT = 1200.0
"""Simulated seconds that the jobs may take; they take about 400."""
_GPU_MEMORY = 24 << 30
_PRODUCT, _SM_COUNT = "NVIDIA A10", 72
"""24 GB and 72 SMs: NVIDIA's A10 data sheet."""
_MACHINES, _GPUS_EACH = 2, 2


@click.command("demo", short_help="Watch jobs share simulated GPUs: start here.")
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
def command(*, serve: bool, policy: str | None, speed: float) -> None:
    """Run the examples on a simulated cluster and show what happens.

    The demo starts an API server, two nodes with two simulated GPUs each, and the real operator.
    It applies the YAML files in examples/ and shows how their jobs share two of the GPUs. One job
    runs out of memory and starts again with more, one is suspended, and one is too large for any
    GPU. The demo needs no cluster, no GPU and no network, and takes less than a minute.

    \b
    Examples:
      partita demo
      partita demo --policy sjf
      partita demo --serve
    """  # noqa: D301
    import sys
    from pathlib import Path
    from shutil import rmtree
    from tempfile import mkdtemp

    from partita.cli.run_until_stopped import Stopped, run_until_stopped

    terminal.quiet_logs()
    if policy is not None:
        chosen_policies(
            [policy], []
        )  # reports a policy that cannot be built before anything starts
    folder = Path(mkdtemp(prefix="partita-demo-"))
    try:
        problems = run_until_stopped(_demo(folder, policy, speed, serve=serve))
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


async def _demo(folder: "Path", policy: str | None, speed: float, *, serve: bool) -> list[str]:
    """Run the demo; return the deviations from the expected results."""
    import asyncio

    from partita.cli.connection import read_state
    from partita_testcluster.cli.demo_display import demo_display
    from partita_testcluster.cli.demo_events import DemoEvents
    from partita_testcluster.cli.examples import load_examples
    from partita_testcluster.cli.local_cluster import sandbox
    from partita_testcluster.nodes import NodeSpec

    examples = load_examples(policy)
    machines = [
        NodeSpec(f"sim-{i}", _GPUS_EACH, _GPU_MEMORY, _PRODUCT, _SM_COUNT) for i in range(_MACHINES)
    ]
    history = DemoEvents(speed)
    kubeconfig = folder / "kubeconfig"
    terminal.say(
        f"{len(examples.jobs)} jobs of two teams share {examples.partition.spec.gpus} of "
        f"{_MACHINES * _GPUS_EACH} simulated GPUs. The operator is real; no program is executed."
    )
    if serve:
        terminal.say(
            f"To look at the cluster from another shell:\n  export KUBECONFIG={kubeconfig}"
        )
    with demo_display() as screen:
        screen.step("starting an API server, simulated nodes and the operator")
        async with sandbox(folder, machines, speed=speed) as box:
            late = await _play(box, examples, history, screen, speed)
            state = await read_state(box.kube)
            screen.close()
            problems = [*late, *_report(examples, history, state, speed)]
            if not problems:
                terminal.say(_next_steps(kubeconfig, serve=serve))
            while serve and not problems:
                box.check()
                await asyncio.sleep(1)
    return problems


def _next_steps(kubeconfig: "Path", *, serve: bool) -> str:
    if not serve:
        return (
            "\nNext: `partita demo --serve` (`make demo ARGS=--serve`) keeps the cluster, and "
            "docs/tutorial.md\nshows what to try on it."
        )
    return (
        "\nThe cluster stays up until Ctrl-C. Next, in another shell:\n"
        f"  export KUBECONFIG={kubeconfig}\n"
        "  partita top                                # GPUs and queue, live\n"
        "  partita explain team-hpc/hoomd-large       # why a job waits\n"
        "  partita logs team-hpc/lammps-melt          # what a program printed\n"
        "docs/tutorial.md goes on from here."
    )


async def _play(
    box: "Sandbox", examples: "Examples", history: "DemoEvents", screen: "DemoDisplay", speed: float
) -> list[str]:
    """Apply the examples and follow their jobs; return the exceeded time limits."""
    from datetime import UTC, datetime

    from partita.cli.cluster.install import create
    from partita_testcluster.cli.demo_events import settled

    wanted = examples.partition.spec.gpus

    def ready(state: "State") -> bool:
        return sum(s.status.holds("Ready") for s in state.servers.values()) >= wanted

    def ended(state: "State") -> bool:
        return len(state.jobs) >= len(examples.jobs) and all(map(settled, state.jobs.values()))

    screen.step(f"applying the partition: the operator reserves {wanted} GPUs for shared jobs")
    for body in examples.before:
        await create(box.kube, body)
    if not await _watch(box, history, screen, ready, _STARTED_WITHIN):
        return [f"{wanted} GPUs were not ready within {_STARTED_WITHIN:.0f} s"]
    screen.step(
        f"submitting {len(examples.jobs)} jobs; {speed:g} simulated seconds take one second"
    )
    history.began = datetime.now(UTC)
    for body in examples.jobs:
        await create(box.kube, body)
    limit = _STARTED_WITHIN + _SIMULATED_LIMIT / speed
    if not await _watch(box, history, screen, ended, limit):
        return [f"not all jobs had finished within {limit:.0f} s"]
    return []


async def _watch(
    box: "Sandbox",
    history: "DemoEvents",
    screen: "DemoDisplay",
    until: "Callable[[State], bool]",
    limit: float,
) -> bool:
    """Display events until a condition holds; return whether it held in time."""
    import asyncio
    from datetime import UTC, datetime

    from partita.cli.connection import read_state
    from partita.console.view import partitions_view

    try:
        async with asyncio.timeout(limit):
            while True:
                box.check()
                state, now = await read_state(box.kube), datetime.now(UTC)
                events = history.update(state, now)
                at = history.seconds(history.began, now)
                screen.show(partitions_view(state, now), events, at)
                if until(state):
                    return True
                await asyncio.sleep(_POLL)
    except TimeoutError:
        return False


def _report(examples: "Examples", history: "DemoEvents", state: "State", speed: float) -> list[str]:
    """Print the result; return the jobs whose end differs from the one expected from their YAML."""
    from partita.models import SharedGPUJob
    from partita_testcluster.cli.demo_result import makespan, rows, summary, unexpected
    from partita_testcluster.cli.examples import expected_ending, work_of
    from partita_testcluster.cli.one_job_per_gpu import one_job_per_gpu

    partition = state.partitions[examples.partition.metadata.name]
    jobs = list(state.jobs.values())
    wishes = [SharedGPUJob.parse(body) for body in examples.jobs]
    endings = {job.key: expected_ending(job, partition, _GPU_MEMORY) for job in wishes}
    ran = [job for job in wishes if endings[job.key].phase.finished]
    alone = one_job_per_gpu(
        ((work_of(job), job.spec.retry.out_of_memory.limit) for job in ran),
        gpus=partition.spec.gpus,
        memory=_GPU_MEMORY,
    )
    console = terminal.console()
    picture = summary(
        rows(jobs, history),
        width=console.width,
        taken=makespan(jobs, history),
        alone=alone,
        gpus=partition.spec.gpus,
        speed=speed,
        shadows=partition.status.shadow,
    )
    terminal.display(picture)
    return [
        f"{job.key} should be {ending.phase}{f' ({ending.reason})' if ending.reason else ''}, "
        f"but is {job.status.phase or 'new'} {job.status.reason}".rstrip()
        for job, ending in unexpected(jobs, endings)
    ]
