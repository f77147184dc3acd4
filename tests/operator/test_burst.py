"""Memory above the guarantee: who gets it, and what becomes of a job whose memory is reclaimed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from partita_testcluster.nodes import NodeSpec
from support.job import Job
from support.system import GIB, System

R615 = NodeSpec("r615", 1, 40 * GIB, driver_version="615.71.09")
EXAMPLE = Path(__file__).parents[2] / "examples" / "burst"


async def test_the_jobs_of_the_example_share_memory_as_it_says(system: System) -> None:
    async with system.running(specs=[R615]):
        spec = yaml.safe_load((EXAMPLE / "partition.yaml").read_text())["spec"]
        del spec["allowedNamespaces"]
        partition = await system.partition(**spec)
        bodies = yaml.safe_load_all((EXAMPLE / "jobs.yaml").read_text())
        jobs = {body["metadata"]["name"]: body["spec"] for body in bodies}
        # On a busy machine it would be over before the other job has started.
        jobs["sweep"]["template"]["metadata"]["annotations"]["sim.partita.dev/duration"] = "1000h"
        sweep = await _submitted(system, partition, "sweep", jobs["sweep"])
        await sweep.phase("Running")
        await sweep.until(lambda _: sweep.usage(system.servers(partition)[0]))
        training = await _submitted(system, partition, "training", jobs["training"])
        await training.succeeds()
        await sweep.until(lambda s: s["phase"] == "Running" and len(s["attempts"]) > 1)
        assert (training.outcomes, {*sweep.outcomes[:-1]}) == (["Succeeded"], {"Reclaimed"})


async def _submitted(system: System, partition: str, name: str, spec: dict[str, Any]) -> Job:
    sizes = {k: v for k, v in spec.items() if k.startswith("gpuMemory")}
    sim = _sim(spec["template"]["metadata"]["annotations"])
    return await system.job(name, partition, sim=sim, **sizes)


def _sim(annotations: dict[str, str]) -> dict[str, str]:
    return {name.removeprefix("sim.partita.dev/"): value for name, value in annotations.items()}
