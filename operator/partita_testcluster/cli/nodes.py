"""`partita nodes`: simulated GPU nodes for any API server."""

from typing import TYPE_CHECKING, Any

import click
from typing_extensions import override

from partita.cli import terminal
from partita.cli.options import MEMORY, kubeconfig_option

if TYPE_CHECKING:
    from partita_testcluster.nodes import NodeSpec

__all__ = ["command"]


class _Faults(click.ParamType[str]):
    """What is to fail, and when."""

    name = "faults"

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from partita_testcluster.nodes import parse_faults

        try:
            parse_faults(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return str(value)


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
    help="Memory of each GPU, an amount such as 40Gi.",
)
@click.option(
    "--product", help="What the GPUs are called; by default an A100, H200 or the like by memory."
)
@click.option(
    "--speed",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="Simulated seconds in a second: at 10, a job of 20 s runs for 2 s.",
)
@click.option(
    "--faults",
    type=_Faults(),
    default="",
    help="What fails when, in simulated time: `mps@30s:SERVER`, `xid@45s:SERVER`, "
    "`gpu-lost@1m:SERVER`, `node-gone@60s+30s:NODE`, `random:2,seed=1` (2 a minute); "
    "a semicolon between two.",
)
def command(
    *,
    kubeconfig: str | None,
    nodes: int,
    gpus: int,
    gpu_memory: int,
    product: str | None,
    speed: float,
    faults: str,
) -> None:
    """Simulate GPU nodes in the cluster of the kubeconfig, until Ctrl-C.

    Nodes named sim-0, sim-1, ... appear and run the Pods that ask for GPUs, as a scheduler,
    kubelets and Partita's agents would: nothing is really executed. What a job does is read from
    annotations of its Pod template:

    \b
      sim.partita.dev/duration: 90s           how long it runs alone on a GPU
      sim.partita.dev/memory: 1Gi,6Gi,6Gi     GPU memory it uses, over equal parts of its run
      sim.partita.dev/gpu: "40"               percent of the GPU that it uses
      sim.partita.dev/exit-code: "1"          how it ends

    Whoever asks for more than its slice runs out of memory; jobs that ask for more than a whole
    GPU together slow each other down.

    \b
    Example:
      partita nodes --nodes 2 --gpus 4 --gpu-memory 80Gi --speed 10 --faults 'random:1'
    """  # noqa: D301
    import asyncio
    from dataclasses import replace

    from partita_testcluster.nodes import node_specs

    terminal.quiet_logs()
    specs = node_specs(nodes * gpus, gpu_memory, gpus_per_node=gpus)
    if product is not None:
        specs = [replace(spec, product=product) for spec in specs]
    asyncio.run(_simulate(kubeconfig, specs, speed, faults))


async def _simulate(
    kubeconfig: str | None, specs: "list[NodeSpec]", speed: float, faults: str
) -> None:
    import asyncio

    from partita.cli.connection import explained
    from partita.cli.run_until_stopped import stop_on_signals
    from partita.kube.client import NODES, Kube
    from partita.kube.connect import connect
    from partita.models.quantities import format_memory
    from partita_testcluster.nodes import run_nodes
    from partita_testcluster.nodes.api import ApiError

    stop, started = stop_on_signals(), asyncio.Event()

    async def tell() -> None:
        await started.wait()
        first = specs[0]
        terminal.say(
            f"{len(specs)} nodes with {first.gpus} GPUs of {format_memory(first.gpu_memory)} each, "
            f"at speed {speed:g}, until Ctrl-C."
        )

    with explained():
        async with connect(kubeconfig) as api:
            await Kube(api).list(NODES)  # says at once when there is no cluster
            telling = asyncio.create_task(tell())
            try:
                await run_nodes(
                    api.configuration,
                    nodes=specs,
                    stop=stop,
                    speed=speed,
                    faults=faults,
                    started=started,
                )
            except ApiError as error:
                raise terminal.UserError(
                    f"{error}: may this kubeconfig's user create Nodes, and update GPUServers?"
                ) from error
            finally:
                telling.cancel()
