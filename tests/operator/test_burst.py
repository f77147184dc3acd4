"""Memory above the guarantee: who gets it, and what becomes of a job whose memory is reclaimed."""

from __future__ import annotations

from pathlib import Path

import yaml

from partita_testcluster.nodes import NodeSpec
from support.system import GIB, System

R615 = NodeSpec("r615", 1, 40 * GIB, driver_version="615.71.09")
EXAMPLE = Path(__file__).parents[2] / "examples" / "burst"


async def test_the_jobs_of_the_example_end_as_it_says(system: System) -> None:
    async with system.running(specs=[R615]):
        spec = yaml.safe_load((EXAMPLE / "partition.yaml").read_text())["spec"]
        del spec["allowedNamespaces"]
        partition = await system.partition(**spec)
        sweep, training = [
            await system.job(
                body["metadata"]["name"],
                partition,
                sim=_sim(body["spec"]["template"]["metadata"]["annotations"]),
                **{k: v for k, v in body["spec"].items() if k.startswith("gpuMemory")},
            )
            for body in yaml.safe_load_all((EXAMPLE / "jobs.yaml").read_text())
        ]
        await training.succeeds()
        await sweep.succeeds()
        assert training.outcomes == ["Succeeded"]
        assert sweep.outcomes[0] == "Reclaimed"
        assert set(sweep.outcomes[:-1]) == {"Reclaimed"}


def _sim(annotations: dict[str, str]) -> dict[str, str]:
    return {name.removeprefix("sim.partita.dev/"): value for name, value in annotations.items()}
