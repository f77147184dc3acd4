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

_LOOK = 0.2
"""Seconds between two looks at the cluster."""
_STARTED_WITHIN = 45.0
"""Seconds for the GPUs to be ready: most of it is reserve for a slow machine."""
_SIMULATED_LIMIT = 900.0
"""Simulated seconds that the jobs may take; they take about 300."""
_GPU_MEMORY = 24 << 30
_PRODUCT, _SM_COUNT = "NVIDIA A10", 72
"""24 GB and 72 SMs: NVIDIA's A10 data sheet."""
_MACHINES, _GPUS_EACH = 2, 2


@click.command("demo", short_help="Watch jobs share simulated GPUs: start here.")
@click.option("--serve", is_flag=True, help="Stay up at the end, to play with kubectl.")
@click.option(
    "--policy", type=POLICY, help="Put this policy in charge instead of the partition's own."
)
@click.option(
    "--speed",
    type=click.FloatRange(min=1, max=100),
    default=10.0,
    show_default=True,
    help="Simulated seconds in a second.",
)
def command(*, serve: bool, policy: str | None, speed: float) -> None:
    """Run the examples on a simulated cluster and watch.

    Starts an API server, two machines with two simulated GPUs each, and the real operator; applies
    the YAML files in examples/, and shows how their jobs share two of the GPUs: one runs out of
    memory and comes back larger, one is suspended, one is too large for any GPU. It needs no
    cluster, no GPU and no network, and takes about half a minute.

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
        chosen_policies([policy], [])  # one that cannot be built is told before anything starts
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
        said = "; ".join(problems)
        raise terminal.UserError(f"{said}: see the operator's log, {folder / 'operator.log'}")
    rmtree(folder)


async def _demo(folder: "Path", policy: str | None, speed: float, *, serve: bool) -> list[str]:
    """Run the demo; return what did not go as it should."""
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
    story = DemoEvents(speed)
    invitation = f"  kubectl --kubeconfig {folder / 'kubeconfig'} get sharedgpujobs -A"
    if serve:
        terminal.say(f"In another shell:\n{invitation}")
    with demo_display() as screen:
        screen.step("starting an API server, simulated nodes and the operator")
        async with sandbox(folder, machines, speed=speed) as box:
            late = await _play(box, examples, story, screen, speed)
            state = await read_state(box.kube)
            screen.close()
            problems = [*late, *_report(examples, story, state, speed)]
            if serve and not problems:
                terminal.say(f"\nThe cluster stays up until Ctrl-C:\n{invitation}")
                while True:
                    box.check()
                    await asyncio.sleep(1)
    return problems


async def _play(
    box: "Sandbox", examples: "Examples", story: "DemoEvents", screen: "DemoDisplay", speed: float
) -> list[str]:
    """Apply the examples and follow their jobs; return what took too long."""
    from datetime import UTC, datetime

    from partita.cli.cluster.install import create
    from partita_testcluster.cli.demo_events import settled

    wanted = examples.partition.spec.gpus

    def ready(state: "State") -> bool:
        return sum(s.status.holds("Ready") for s in state.servers.values()) >= wanted

    def ended(state: "State") -> bool:
        return len(state.jobs) >= len(examples.jobs) and all(map(settled, state.jobs.values()))

    screen.step(f"applying the partition: {wanted} GPUs are carved out")
    for body in examples.before:
        await create(box.kube, body)
    if not await _watch(box, story, screen, ready, _STARTED_WITHIN):
        return [f"{wanted} GPUs were not ready within {_STARTED_WITHIN:.0f} s"]
    screen.step(f"{len(examples.jobs)} jobs of two teams, at {speed:g} times the speed")
    story.began = datetime.now(UTC)
    for body in examples.jobs:
        await create(box.kube, body)
    limit = _STARTED_WITHIN + _SIMULATED_LIMIT / speed
    if not await _watch(box, story, screen, ended, limit):
        return [f"not all jobs had ended within {limit:.0f} s"]
    return []


async def _watch(
    box: "Sandbox",
    story: "DemoEvents",
    screen: "DemoDisplay",
    until: "Callable[[State], bool]",
    limit: float,
) -> bool:
    """Show what happens until something holds; tell whether it came to hold in time."""
    import asyncio
    from datetime import UTC, datetime

    from partita.cli.connection import read_state
    from partita.console.view import partitions_view

    try:
        async with asyncio.timeout(limit):
            while True:
                box.check()
                state, now = await read_state(box.kube), datetime.now(UTC)
                events = story.look(state, now)
                at = story.seconds(story.began, now)
                screen.show(partitions_view(state, now), events, at)
                if until(state):
                    return True
                await asyncio.sleep(_LOOK)
    except TimeoutError:
        return False


def _report(examples: "Examples", story: "DemoEvents", state: "State", speed: float) -> list[str]:
    """Print the result; return the jobs that ended otherwise than their YAML says."""
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
        rows(jobs, story),
        width=console.width,
        taken=makespan(jobs, story),
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
