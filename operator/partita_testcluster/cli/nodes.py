"""`partita nodes`: simulated GPU nodes for any API server."""

from typing import TYPE_CHECKING

import click
from typing_extensions import TypedDict

from partita.cli import terminal
from partita.cli.options import MEMORY, kubeconfig_option, output_option

if TYPE_CHECKING:
    from partita_testcluster.nodes import NodeSpec

__all__ = ["SimulatedMachines", "command"]


class SimulatedMachines(TypedDict):
    """The nodes; printed as soon as they are there."""

    nodes: list[str]
    gpus: int
    """GPUs of each node."""
    gpuMemory: int
    """Bytes of each GPU."""
    product: str
    speed: float
    """Simulated seconds that pass in one second."""


@click.command("nodes", short_help="Simulate GPU nodes.")
@kubeconfig_option
@click.option(
    "--nodes", type=click.IntRange(1, 1000), default=2, show_default=True, help="How many nodes."
)
@click.option(
    "--gpus", type=click.IntRange(1, 16), default=2, show_default=True, help="GPUs of each node."
)
@click.option(
    "--gpu-memory",
    type=MEMORY,
    default="40Gi",
    show_default=True,
    help="Memory of each GPU, such as 40Gi.",
)
@click.option(
    "--product",
    help="Name of the GPU product; by default one that has this memory.",
)
@click.option(
    "--speed",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="Simulated seconds that pass in one second: at 10, a job of 20 s runs for 2 s.",
)
@output_option("partita_testcluster.cli.nodes:SimulatedMachines", usual="text")
def command(
    *,
    kubeconfig: str | None,
    nodes: int,
    gpus: int,
    gpu_memory: int,
    product: str | None,
    speed: float,
    output: str,
) -> None:
    """Simulate GPU nodes in the cluster of the kubeconfig, until Ctrl-C.

    Nodes named sim-0, sim-1, ... appear and run the Pods that ask for GPUs. No program is executed.
    Annotations of a job's Pod template describe what its program does:

    \b
      sim.partita.dev/duration: 90s           how long it runs alone on a GPU
      sim.partita.dev/memory: 1Gi,6Gi,6Gi     GPU memory that it uses, over equal parts of its run
      sim.partita.dev/gpu: "40"               percent of the GPU that it uses
      sim.partita.dev/exit-code: "1"          its exit code

    A program that uses more memory than its job asked for runs out of memory. Jobs on one GPU slow
    each other down as in `partita simulate`. Pods with claims of Partita run as well. The program
    of a Pod with restartPolicy Always begins again after its duration, and never ends by itself.

    To let a GPU fail, annotate its GPUServer with sim.partita.dev/fault: mps, xid or gpu-lost. To
    lose a node, delete its Node; it returns when the Node is created again.

    \b
    Examples:
      partita nodes --nodes 2 --gpus 4 --gpu-memory 80Gi --speed 10
      kubectl annotate gpuserver shared-0 sim.partita.dev/fault=xid
    """  # noqa: D301
    import asyncio
    from dataclasses import replace

    from partita.garbage_collection import collect_often
    from partita_testcluster.nodes import node_specs

    terminal.quiet_logs()
    collect_often()
    specs = node_specs(nodes * gpus, gpu_memory, gpus_per_node=gpus)
    if product is not None:
        specs = [replace(spec, product=product) for spec in specs]
    asyncio.run(_simulate(kubeconfig, specs, speed, output))


async def _simulate(
    kubeconfig: str | None, specs: "list[NodeSpec]", speed: float, output: str
) -> None:
    import asyncio

    from partita.cli.connection import explained
    from partita.cli.run_until_stopped import stop_on_signals
    from partita.kube.client import NODES, Kube
    from partita.kube.connect import connect
    from partita.kube.errors import KubernetesError
    from partita.models.quantities import format_memory
    from partita_testcluster.nodes import run_nodes

    stop, started = stop_on_signals(), asyncio.Event()

    async def tell() -> None:
        await started.wait()
        first = specs[0]
        terminal.say(
            f"{len(specs)} nodes with {first.gpus} GPUs of {format_memory(first.gpu_memory)} each, "
            f"at speed {speed:g}, until Ctrl-C."
        )
        if output != "text":
            machines = SimulatedMachines(
                nodes=[spec.name for spec in specs],
                gpus=first.gpus,
                gpuMemory=first.gpu_memory,
                product=first.product,
                speed=speed,
            )
            terminal.dump(machines, output)

    with explained():
        async with connect(kubeconfig) as api:
            await Kube(api).list(NODES)  # reports at once that no cluster answers
            telling = asyncio.create_task(tell())
            try:
                await run_nodes(
                    api.configuration,
                    nodes=specs,
                    stop=stop,
                    speed=speed,
                    started=started,
                )
            except KubernetesError as error:
                raise terminal.UserError(
                    f"{error}: may this kubeconfig's user create Nodes, and update GPUServers?"
                ) from error
            finally:
                telling.cancel()
